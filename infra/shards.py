"""More fleets on the same broker, which decide as one with the first (docs/scale.md).

Each has orchestrators, a gateway, agents and scorers of its own, queues under a prefix of its own, and logs in a folder
of the claim of the first. Trainer, judge, broker and toolbox are the first fleet's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pulumi

from infra import fleet
from infra.api_keys import ApiKeys
from infra.broker import Accounts
from infra.foundation import Foundation
from infra.process import Process, Role
from infra.settings import StackSettings, of_shard
from infra.workload import Workload


def shard(
    number: int,
    settings: StackSettings,
    foundation: Foundation,
    accounts: Accounts,
    keys: ApiKeys,
    *,
    broker: Workload,
    models: Sequence[Workload],
) -> None:
    """Make the fleet with this number, from 1."""
    mine, users = of_shard(settings, number), accounts.of_shard(number)

    def make_workload(process: Process, *needs: pulumi.Resource) -> Workload:
        return Workload(as_shard(process, number, settings), foundation, after=needs)

    queues = make_workload(fleet.queues(mine, users), broker)
    orchestrator = make_workload(fleet.orchestrator(mine, users, keys), queues)
    make_workload(fleet.gateway(mine), orchestrator)
    make_workload(fleet.scorer(mine, users, keys), queues)
    for agent in mine.agents:
        make_workload(fleet.agent(agent, mine, users, keys), queues, *models)


def as_shard(process: Process, number: int, settings: StackSettings) -> Process:
    """Return the process as that of the fleet with this number: its name, its logs, and whom it follows."""
    told = dict(process.environment)
    if number and "RATCHET_LOGS_DIR" in told:
        told["RATCHET_LOGS_DIR"] = _logs_of(number)
    if process.role is Role.ORCHESTRATOR and number:
        told |= {"RATCHET_LEASE": f"{process.name}-{number}"} if process.leads_by_lease else {}
        told |= {"RATCHET_POOL": fleet.LOGS_AT, "RATCHET_FLEET_NUMBER": str(number)}
    elif process.role is Role.ORCHESTRATOR and settings.shards > 1:
        told["RATCHET_POOLED_LOGS"] = ",".join(_logs_of(other) for other in range(1, settings.shards))
    main = process.main
    if process.role is Role.GATEWAY and number:
        main = replace(main, args=tuple(one.replace("orchestrator-", f"orchestrator-{number}-") for one in main.args))
    name = f"{process.name}-{number}" if number else process.name
    return replace(process, name=name, environment=told, main=main)


def _logs_of(number: int) -> str:
    return f"{fleet.LOGS_AT}/fleet-{number}"
