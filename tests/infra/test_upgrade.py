"""infra/upgrade.sh over a `docker` that only remembers: what it replaces, in which order, and what it never touches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.infra.test_compose import ONCE, SERVICES

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "infra" / "upgrade.sh"
DOCKER = r"""#!/bin/sh
echo "$*" >> "$LAB/calls"
for last in "$@"; do :; done
case "$*" in
    "compose ps --services"*) cat "$LAB/services" ;;
    "compose ps --format"*) cat "$LAB/containers/$last" 2>/dev/null || true ;;
    "compose ps --all --quiet topology") echo topology-1 ;;
    "wait "*) cat "$LAB/topology-code" ;;
    *"--dry-run create"*) sed 's/^/ DRY-RUN MODE -  Container /; s/$/  Running/' "$LAB/current" ;;
    "compose exec -T $(cat "$LAB/leader") python"*) exit 0 ;;
    *"container_health readyz") exit 1 ;;
    "compose run --rm --no-deps -T settings"*) exit "$(cat "$LAB/settings-code")" ;;
    "compose up"*"$(cat "$LAB/broken")") exit 1 ;;
esac
"""
FLEET = {
    "rabbitmq": ["rabbitmq-1"],
    "orchestrator": ["orchestrator-1"],
    "orchestrator-standby": ["standby-1"],
    "gateway": ["gateway-1"],
    "agent": ["agent-1", "agent-2"],
    "vllm": ["vllm-1"],
}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A running fleet in which `orchestrator` leads, and the vLLM server and the gateway are current."""
    (tmp_path / "containers").mkdir()
    for service, containers in FLEET.items():
        (tmp_path / "containers" / service).write_text("\n".join(containers) + "\n")
    for name, content in {
        "services": "\n".join(sorted(FLEET)),
        "current": "rabbitmq-1\nvllm-1\ngateway-1\n",
        "leader": "orchestrator",
        "topology-code": "0",
        "settings-code": "0",
        "broken": "nothing",
    }.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    return tmp_path


def upgraded(lab: Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """How it ended, and what it asked of docker."""
    environment = os.environ | {"PATH": f"{lab}:{os.environ['PATH']}", "LAB": str(lab)}
    run = subprocess.run(["sh", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=60)
    return run, (lab / "calls").read_text().splitlines()


def replaced(calls: list[str]) -> list[str]:
    return [call.removeprefix("stop ") for call in calls if call.startswith("stop ")]


@pytest.mark.parametrize(
    ("leader", "first"), [("orchestrator", "standby-1"), ("orchestrator-standby", "orchestrator-1")]
)
def test_the_orchestrator_that_does_not_lead_goes_first_and_what_is_current_stays(
    lab: Path, leader: str, first: str
) -> None:
    (lab / "leader").write_text(leader)

    run, calls = upgraded(lab)

    assert run.returncode == 0, run.stderr
    orchestrators, others = replaced(calls)[:2], replaced(calls)[2:]
    assert orchestrators == [first, ({"standby-1", "orchestrator-1"} - {first}).pop()]
    assert others == ["agent-1", "agent-2"]


def test_each_successor_is_well_before_the_next_container_goes(lab: Path) -> None:
    _, calls = upgraded(lab)

    steps = [call.split()[0] if call.startswith(("stop", "rm ")) else "up" for call in calls
             if call.startswith(("stop ", "rm ", "compose up -d --no-build --no-recreate --wait"))]  # fmt: skip
    assert steps == ["stop", "rm", "up"] * 4 + ["up"]


def test_the_broker_is_told_of_users_and_is_never_replaced_even_if_it_is_not_current(lab: Path) -> None:
    (lab / "current").write_text("vllm-1\n")

    run, calls = upgraded(lab)

    assert "rabbitmq-1" not in replaced(calls)
    assert any("import_definitions" in call for call in calls)
    assert "docker compose up -d rabbitmq" in run.stderr


def test_a_setting_that_can_not_be_used_ends_it_before_anything_is_touched(lab: Path) -> None:
    (lab / "settings-code").write_text("1")

    run, calls = upgraded(lab)

    assert run.returncode != 0
    assert [call for call in calls if call.startswith(("stop", "rm", "compose rm", "compose up"))] == []


def test_a_successor_that_is_not_well_ends_it_and_leaves_the_rest(lab: Path) -> None:
    (lab / "broken").write_text("agent")

    run, calls = upgraded(lab)

    assert run.returncode != 0
    assert replaced(calls)[-1] == "agent-1"
    assert "docker compose logs agent" in run.stderr


def test_with_programs_what_they_require_is_installed_anew(lab: Path) -> None:
    _, without = upgraded(lab)
    (lab / "services").write_text("\n".join(sorted([*FLEET, "runner"])))
    _, calls = upgraded(lab)

    removed = [call for call in calls[len(without) :] if " rm --force --stop " in call]
    assert removed and removed[0].endswith(" models installer")
    assert not [call for call in without if "installer" in call]


def test_without_a_fleet_it_says_how_to_start_one(lab: Path) -> None:
    (lab / "services").write_text("")

    run, calls = upgraded(lab)

    assert run.returncode != 0 and "docker compose up -d" in run.stderr
    assert len(calls) == 1


def test_its_jobs_are_those_of_compose_and_its_broker_is_there() -> None:
    (line,) = (line for line in SCRIPT.read_text().splitlines() if line.startswith("JOBS="))

    assert set(line.removeprefix("JOBS=").strip('"').split()) == ONCE - {"installer"}
    assert "rabbitmq" in SERVICES
