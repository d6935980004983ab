"""A Prometheus with our configuration and rules; only the targets are others: processes of this machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from tests.infra.promtool import ROOT, program
from tests.private_broker import free_port
from tests.waiting import wait_until

OURS = ROOT / "infra" / "prometheus"
READY_S = STOP_S = 60.0


def adapted(targets: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """prometheus.yml with these addresses (host:port) by job. A job without any is left out: it would only be down."""
    configuration: dict[str, Any] = yaml.safe_load((OURS / "prometheus.yml").read_text())
    configuration["rule_files"] = [str(OURS / name) for name in configuration["rule_files"]]
    configuration["alerting"] = {}
    configuration["scrape_configs"] = [
        _at(job, targets[job["job_name"]]) for job in configuration["scrape_configs"] if targets.get(job["job_name"])
    ]
    return configuration


def _at(job: Mapping[str, Any], addresses: Sequence[str]) -> dict[str, Any]:
    kept = {key: value for key, value in job.items() if not key.endswith("_sd_configs")}
    return kept | {"static_configs": [{"targets": list(addresses)}]}


def scrape_interval_s() -> int:
    return int(str(adapted({})["global"]["scrape_interval"]).removesuffix("s"))


def hurried(configuration: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same, each second, with rules that fire at once: without `for`, and otherwise as they are."""
    rules = yaml.safe_load((OURS / "rules.yml").read_text())
    for group in rules["groups"]:
        group["rules"] = [{key: value for key, value in rule.items() if key != "for"} for rule in group["rules"]]
    (folder / "hurried.yml").write_text(yaml.safe_dump(rules))
    times = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s")
    return {**configuration, "global": configuration["global"] | times, "rule_files": ["hurried.yml"]}


def firing(address: str) -> dict[str, dict[str, str]]:
    """The alerts that fire in this Prometheus, each with its labels."""
    with urlopen(f"{address}/api/v1/alerts", timeout=10) as answer:
        alerts = json.loads(answer.read())["data"]["alerts"]
    return {one["labels"]["alertname"]: one["labels"] for one in alerts if one["state"] == "firing"}


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, Sequence[str]], *, hurry: bool = False) -> Iterator[str]:
    """Its address, while it scrapes. What it collects stays in the folder. Raises RuntimeError if it does not start."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = hurried(adapted(targets), folder) if hurry else adapted(targets)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    options = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program("prometheus"), *options], cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        _await_ready(process, f"http://{address}", folder / "prometheus.log")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(STOP_S)


def _await_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"Prometheus did not start (exit code {process.poll()}): see {log}")
        try:
            with urlopen(f"{address}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    wait_until(ready, f"Prometheus; see {log}", READY_S)
