"""What `docker compose` makes of docker-compose.yml with each profile, and with each GPU block of .env.example."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.compile(r"^# --- (GPU[^:]*): take the # off this whole block.*\n((?:#.*\n)+)", re.MULTILINE)


@pytest.fixture
def compose() -> list[str]:
    command = ["docker", "compose"]
    try:
        subprocess.run([*command, "version"], capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no docker compose here; test_compose.py reads the files as YAML")
    return command


def started(compose: list[str], settings: Path) -> dict[str, dict[str, Any]]:
    """The services of which there is at least one container."""
    command = [*compose, "--env-file", str(settings), "config", "--format", "json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    services: dict[str, dict[str, Any]] = json.loads(run.stdout)["services"]
    return {name: service for name, service in services.items() if service["deploy"].get("replicas", 1) > 0}


def gpus(services: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Which GPU each container that has one gets."""
    return {
        name: device["device_ids"][0]
        for name, service in services.items()
        for device in service["deploy"]["resources"].get("reservations", {}).get("devices", ())
        if device["driver"] == "nvidia" and device["capabilities"] == ["gpu"]
    }


def block(name: str, folder: Path) -> Path:
    """A settings file: that block of .env.example, the # taken off."""
    blocks = dict(BLOCKS.findall((ROOT / ".env.example").read_text()))
    file = folder / "settings.env"
    file.write_text("\n".join(re.findall(r"^#([A-Z_]+=.*)$", blocks[name], re.MULTILINE)))
    return file


def test_it_takes_the_files_with_every_profile(compose: list[str]) -> None:
    run = subprocess.run(
        [*compose, "--profile", "*", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr


def test_without_settings_nobody_has_a_gpu(compose: list[str], tmp_path: Path) -> None:
    settings = tmp_path / "settings.env"
    settings.write_text("")

    services = started(compose, settings)

    assert gpus(services) == {}
    assert services["agent"]["deploy"]["replicas"] == 2
    assert {"scorer", "trainer"} <= set(services)


def test_with_the_gpu_block_the_model_is_served_by_vllm(compose: list[str], tmp_path: Path) -> None:
    services = started(compose, block("GPU", tmp_path))

    assert gpus(services) == {"vllm": "0", "vllm-judge": "1", "trainer-gpu": "0"}
    assert services["agent"]["image"].startswith("ratchet-agent:")
    assert "trainer" not in services


def test_with_the_block_without_vllm_the_model_runs_in_the_agent(compose: list[str], tmp_path: Path) -> None:
    services = started(compose, block("GPU without vLLM", tmp_path))

    assert gpus(services) == {"agent-gpu": "0", "trainer-gpu": "0"}
    assert {"agent", "trainer", "vllm", "vllm-judge"} & set(services) == set()
    assert services["agent-gpu"]["image"].startswith("ratchet-agent-cuda:")
    assert services["agent-gpu"]["build"]["args"]["TORCH_INDEX"].endswith("/cu130")
    assert "vllm" not in services["agent-gpu"]["depends_on"]


def test_what_runs_on_a_gpu_may_load_what_it_compiles(compose: list[str], tmp_path: Path) -> None:
    services = started(compose, block("GPU", tmp_path)) | started(compose, block("GPU without vLLM", tmp_path))

    assert {name: services[name]["tmpfs"] for name in gpus(services)} == {
        name: ["/tmp:exec,size=8g"] for name in gpus(services)
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of Compose in a folder of their own, with an .env that is the test's."""
    for name in ("docker-compose.yml", "infra/observability.compose.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def compose_config(compose: list[str], folder: Path, *question: str) -> str:
    command = [*compose, "--profile", "*", "config", *question]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def resolved(compose: list[str], folder: Path, settings: str) -> dict[str, dict[str, Any]]:
    """The services with all variables and settings files read: what Compose makes its containers of."""
    (folder / ".env").write_text(settings)
    services: dict[str, dict[str, Any]] = json.loads(compose_config(compose, folder, "--format", "json"))["services"]
    return services


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        (
            "RATCHET_TAG=0.2.0\n",
            {"orchestrator", "orchestrator-standby", "gateway", "agent", "scorer", "trainer", "settings"},
        ),
        ("RATCHET_SAMPLES=4\n", {"orchestrator", "orchestrator-standby", "agent", "scorer", "trainer", "credentials"}),
        ("HF_TOKEN=x\nRATCHET_SCORER=verifier:exact\n", {"vllm", "scorer"}),
    ],
    ids=["tag", "setting", "secret"],
)
def test_a_new_tag_or_setting_changes_services_and_never_the_broker(
    compose: list[str], checkout: Path, settings: str, changed: set[str]
) -> None:
    before, after = resolved(compose, checkout, ""), resolved(compose, checkout, settings)

    differing = {name for name in before if before[name] != after[name]}
    assert differing >= changed
    assert "rabbitmq" not in differing


def test_even_a_secret_in_the_settings_file_reaches_only_whom_it_is_for(compose: list[str], checkout: Path) -> None:
    meant = {
        "RATCHET_SCORER_JUDGE_API_KEY": {"scorer", "auditor"},  # whose judge is the scorer's where it has none
        "RATCHET_SCORER_JUDGE_FENCE_KEY": {"scorer", "auditor"},
        "RATCHET_AGENT_VLLM_API_KEY": {"agent", "agent-gpu"},
        "HF_TOKEN": {"agent", "agent-gpu", "scorer", "auditor", "trainer", "trainer-gpu", "vllm", "vllm-judge"},
    }

    services = resolved(compose, checkout, "".join(f"{name}=of {name}\n" for name in meant))

    seen = {name: {who for who, service in services.items() if f"of {name}" in str(service)} for name in meant}
    assert seen == meant
