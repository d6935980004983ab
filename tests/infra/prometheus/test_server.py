"""Our configuration with other targets: still what Prometheus takes, and still ours in all else."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.infra.prometheus.server import adapted
from tests.infra.promtool import run_promtool


def test_only_the_targets_are_others(tmp_path: Path) -> None:
    configuration = adapted({"agent": ["127.0.0.1:1"], "rabbitmq": ["127.0.0.1:2"]})

    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    run = run_promtool("check", "config", "prometheus.yml", folder=tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    agent, broker = configuration["scrape_configs"]
    assert agent["static_configs"] == [{"targets": ["127.0.0.1:1"]}]
    assert broker["static_configs"] == [{"targets": ["127.0.0.1:2"]}]
    assert agent["relabel_configs"] == [{"target_label": "fleet", "replacement": "ratchet"}]
    assert not any(key.endswith("_sd_configs") for job in (agent, broker) for key in job)
