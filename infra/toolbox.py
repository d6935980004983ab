"""The pod in which a person types `ratchet`: `kubectl -n ratchet exec -it deployment/operator -- ratchet …`.

It has the operator's user of the broker, the logs and the adapters. It may write both, because logs are pruned and
a backup is restored through it. It opens no port and can't issue tokens of the API.
"""

from __future__ import annotations

from infra import probes
from infra.broker import OPERATOR, Accounts
from infra.fleet import ADAPTERS_AT, AUDIT_AT, DECISION_KEYS_AT, LOGS_AT, agent_ids, image_name, namespace_of_queues
from infra.foundation import ADAPTERS, AUDIT, DECISION_KEYS, LOGS
from infra.process import Claim, Mount, Process, Program, Role, Scale
from infra.settings import Resources, StackSettings


def toolbox(settings: StackSettings, accounts: Accounts) -> Process:
    well = probes.command("test", "-w", ADAPTERS_AT, every_s=30, timeout_s=5)
    return Process(
        name="operator",
        role=Role.OPERATOR,
        main=Program(
            name="shell",
            image=image_name("cli", settings),
            resources=Resources(cpu="10m", memory="512Mi"),
            command=("sleep", "infinity"),
            mounts=(
                Mount(Claim(LOGS), LOGS_AT),
                Mount(Claim(ADAPTERS), ADAPTERS_AT),
                Mount(Claim(DECISION_KEYS), DECISION_KEYS_AT),
                Mount(Claim(AUDIT), AUDIT_AT, read_only=True),
            ),
            startup=well,
            liveness=well,
            readiness=well,
        ),
        environment=namespace_of_queues(settings)
        | {
            "RATCHET_AGENTS": agent_ids(settings),
            "RATCHET_LOGS_DIR": LOGS_AT,
            "RATCHET_ADAPTERS_DIR": ADAPTERS_AT,
            "RATCHET_DECISION_KEYS": DECISION_KEYS_AT,
            "RATCHET_API_AUDIT_DIR": AUDIT_AT,
        },
        secrets={"RATCHET_AMQP_URL": accounts.amqp_url(OPERATOR)},
        drain_s=1,
        scale=Scale(1, 1),
        metrics=None,
    )
