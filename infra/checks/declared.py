"""The fleet's own declarations of its processes, for the checks that hold pods to it.

Each process's settings class, the pages it serves and its image come from where the services have them, so a change
there is a fault here until the program of the stack follows. Leaves out the broker and vLLM, which are not ours.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Pods
from ratchet.bus.topology import Topology, topology_of
from ratchet.runtime.processes import PROCESSES, DeclaredProcess
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.manager.settings import ManagerSettings
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

ROOT = Path(__file__).parents[2]
SETTINGS: Mapping[str, type[FleetSettings]] = {
    "orchestrator": OrchestratorSettings,
    "agent": AgentSettings,
    "scorer": ScorerSettings,
    "runner": RunnerSettings,
    "trainer": TrainerSettings,
    "manager": ManagerSettings,
}
"""The settings class of each module of services/ that processes.json names."""
OTHER_IMAGES = {
    "gateway": "gateway",
    "operator": "cli",
    "backup": "cli",
    "setup": "cli",
    "tokens": "cli",
    "models": "agent",
    "installer": "runner",
}
"""The image of each of our roles that processes.json does not name. `models` needs torch, `installer` what runs."""
FOREIGN = ("broker", "judge")
"""Roles whose images are not ours."""
PREFIX = "RATCHET_"


@dataclass(frozen=True, slots=True)
class OurContainer:
    """A container of ours and what it is told; `settings` is None where a value can't be used."""

    pods: Pods
    box: Mapping[str, Any]
    variables: Mapping[str, str]
    settings: FleetSettings | None
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.pods}, container {self.box['name']}"


def process_of(pods: Pods) -> tuple[str, DeclaredProcess] | None:
    """The process of processes.json that these pods are: by their own name (`auditor`), else by their role."""
    for name in (pods.owner.name, str(pods.labels.get(ROLE))):
        if name in PROCESSES:
            return name, PROCESSES[name]
    return None


def settings_class(pods: Pods) -> type[FleetSettings]:
    """Return the class of the process; the command line has the settings that all share."""
    process = process_of(pods)
    return SETTINGS[process[1].module] if process else FleetSettings


def folder_of_models(box: Mapping[str, Any]) -> str:
    """Return where the job that makes the small models puts them; `nowhere` if its words name no folder."""
    words = list(box.get("args", []))
    return str(words[2]) if words[:2] == ["make", "--out"] and len(words) > 2 else "nowhere"


def our_containers(cluster: Cluster) -> list[OurContainer]:
    """The main container of each of our pods; sidecars are not ours."""
    return [
        _container(cluster, pods, pods.spec["containers"][0])
        for pods in cluster.pods
        if pods.labels.get(ROLE) not in FOREIGN
    ]


def fleet(cluster: Cluster) -> list[OurContainer]:
    """Return those of `our_containers` that processes.json declares."""
    return [one for one in our_containers(cluster) if process_of(one.pods)]


def _container(cluster: Cluster, pods: Pods, box: Mapping[str, Any]) -> OurContainer:
    variables = dict(cluster.environment(pods, box))
    settings, faults = _settings(settings_class(pods), tuple(sorted(variables.items())))
    return OurContainer(pods, box, variables, settings, faults)


@cache
def _settings(
    kind: type[FleetSettings], variables: tuple[tuple[str, str], ...]
) -> tuple[FleetSettings | None, tuple[str, ...]]:
    with _environment(dict(variables)):
        try:
            return kind.read(), ()
        except SettingsError as error:
            return None, (str(error),)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Only these variables: what is set where the check runs must not fill in what a pod is not told."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({**variables, "RATCHET_SECRETS_DIR": "/nowhere"})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def topology(cluster: Cluster) -> Topology | None:
    """The queues that the job of the setup declares; None where it can't."""
    declared = [one.settings for one in our_containers(cluster) if one.pods.labels.get(ROLE) == "setup"]
    return topology_of(declared[0]) if declared and declared[0] else None


@cache
def pages(module: str) -> frozenset[str]:
    """Paths that answer GET, from the service's OpenAPI document (`ratchet schema`)."""
    document = json.loads((ROOT / f"schemas/generated/openapi/{module}.json").read_text("utf-8"))
    return frozenset(path for path, methods in document["paths"].items() if "get" in methods)


@cache
def image_user() -> int:
    """The user of our images."""
    found = re.search(r"^USER (\d+):\1$", (ROOT / "services/Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert found, "services/Dockerfile names no user by number"
    return int(found[1])
