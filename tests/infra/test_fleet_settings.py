"""What the stacks tell the services is what the services can be told: variables, values, ports, queues, time-outs."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.broker import CONSUMER_TIMEOUT_MS as BROKER_TIMEOUT_MS
from infra.render.manifests import Manifest
from ratchet.bus.topology import CONSUMER_TIMEOUT_MS, fleet_topology
from ratchet.programs.declared import read_programs
from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

SETTINGS: dict[str, type[FleetSettings]] = {
    "orchestrator": OrchestratorSettings,
    "agent-small": AgentSettings,
    "scorer": ScorerSettings,
    "trainer": TrainerSettings,
    "queues": FleetSettings,
}
WITH_PROGRAMS: dict[str, type[FleetSettings]] = {"runner": RunnerSettings, "scorer": ScorerSettings}
USERS = {"queues": "setup"}
"""Of the broker, where it is not called as the process."""


@pytest.fixture(params=["dev", "prod"])
def stack(request: pytest.FixtureRequest) -> list[Manifest]:
    found: list[Manifest] = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=SETTINGS)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def variables_of(stack: list[Manifest], service: str) -> dict[str, str]:
    found = [manifest.content for manifest in stack if manifest.name == service]
    data = [content.get("data", {}) | content.get("stringData", {}) for content in found]
    return {name: value for part in data for name, value in part.items() if name.startswith("RATCHET_")}


def test_every_variable_is_a_setting(stack: list[Manifest], service: str) -> None:
    known = {f"RATCHET_{name.upper()}" for name in SETTINGS[service].model_fields}

    variables = variables_of(stack, service)

    assert "RATCHET_AMQP_URL" in variables
    assert variables.keys() - known == set()


def test_the_service_accepts_its_values(stack: list[Manifest], service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables_of(stack, service).items():
        monkeypatch.setenv(name, value)

    settings = SETTINGS[service].read()

    assert settings.agents == ("small",)
    assert settings.declare_topology == (service == "queues")
    assert settings.amqp_url.get_secret_value().startswith(f"amqp://{USERS.get(service, service)}:")


@pytest.mark.parametrize("service", WITH_PROGRAMS)
def test_a_service_with_sandboxes_accepts_what_it_is_told(
    programs: list[Manifest], service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = variables_of(programs, service)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    settings = WITH_PROGRAMS[service].read()

    assert variables.keys() <= {f"RATCHET_{name.upper()}" for name in WITH_PROGRAMS[service].model_fields}
    assert isinstance(settings, RunnerSettings | ScorerSettings)
    assert settings.sandbox_isolation == "pod"
    assert settings.workspace_urls == ("https://github.com/our-team/",)


def test_the_programs_of_the_stack_are_read_by_the_runner(programs: list[Manifest], tmp_path: Path) -> None:
    (text,) = [one.content["data"] for one in programs if (one.kind, one.name) == ("ConfigMap", "runner-files")]
    (tmp_path / "programs.toml").write_text(text["programs.toml"])

    assert read_programs(tmp_path / "programs.toml", ("small",)).by_agent == {"small": ("mine", "shell")}


def test_every_queue_that_scales_something_is_one_of_the_fleet(prod: list[Manifest]) -> None:
    triggers = [
        trigger["metadata"]["queueName"]
        for manifest in prod
        if manifest.kind in ("ScaledObject", "ScaledJob")
        for trigger in manifest.content["spec"]["triggers"]
    ]

    assert len(triggers) == 4
    assert set(triggers) <= fleet_topology(("small",)).names


def test_the_broker_waits_for_consumers_as_long_as_the_queues_say() -> None:
    assert BROKER_TIMEOUT_MS == CONSUMER_TIMEOUT_MS
