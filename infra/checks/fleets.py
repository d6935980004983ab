"""Several fleets on one broker: which pods are whose, and that all decide as one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import OurContainer, fleet
from infra.settings import StackSettings
from services.orchestrator.settings import OrchestratorSettings

OF_EACH = ("orchestrator", "gateway", "agent", "scorer", "setup")
"""Roles that each fleet has pods of; those of the others serve all."""


def number_of(pods: Pods, stack: StackSettings) -> int:
    """Return the number of the fleet that these pods are of: 0 is the first, whose names end with no number."""
    found = re.search(r"-(\d+)$", pods.owner.name) if stack.shards > 1 else None
    return int(found[1]) if found else 0


def name_in_fleet(pods: Pods, stack: StackSettings) -> str:
    """Return the name of these pods without the number of their fleet."""
    number = number_of(pods, stack)
    return pods.owner.name.removesuffix(f"-{number}") if number else pods.owner.name


def prefix_of(number: int, stack: StackSettings) -> str:
    """Return the namespace on the broker of the fleet with this number."""
    return f"{stack.queue_namespace}{number}." if number else stack.queue_namespace


def fleets_are_whole_and_decide_as_one(cluster: Cluster) -> Iterator[str]:
    """each of several fleets has all its pods, and logs of its own; the first reads those of all, and decides"""
    stack = cluster.settings
    first = [pods for pods in cluster.pods if pods.labels.get(ROLE) in OF_EACH and number_of(pods, stack) == 0]
    names = {pods.owner.name for pods in cluster.pods}
    for number in range(1, stack.shards):
        missing = sorted({f"{pods.owner.name}-{number}" for pods in first} - names)
        yield from (f"fleet {number} has no {name}" for name in missing)
    leaders = {number_of(one.pods, stack): one for one in fleet(cluster) if _is_leader(one)}
    logs = {number: one.settings.logs_dir for number, one in leaders.items() if one.settings}
    followers = tuple(logs[number] for number in sorted(logs) if number)
    for number, one in leaders.items():
        if not isinstance(one.settings, OrchestratorSettings):
            continue
        told = (one.settings.pool, one.settings.pooled_logs, one.settings.fleet_number)
        wanted = (logs.get(0), (), number) if number else (None, followers, 0)
        if told != wanted:
            yield f"{one} is told of the fleets {told}; it must be told {wanted}"
    for pods in cluster.pods:
        if pods.labels.get(ROLE) == "gateway":
            number = number_of(pods, stack)
            asked = f"orchestrator-{number}-nodes:" if number else "orchestrator-nodes:"
            if not any(one.startswith(asked) for box in pods.containers for one in box.get("args", [])):
                yield f"{pods} does not ask {asked[:-1]}, the orchestrators of its fleet"
    if len(set(logs.values())) < len(logs):
        yield f"two fleets write the same logs: {', '.join(map(str, logs.values()))}"


def _is_leader(one: OurContainer) -> bool:
    return one.pods.labels.get(ROLE) == "orchestrator"
