"""A fleet whose users' tasks never end: candidates get through their gate, and users keep nine parts in ten."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from ratchet import client
from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.logs.names import INTERACTIONS, is_own
from ratchet.logs.reader import end_of_log, read
from ratchet.service.settings import FleetSettings
from schemas import Interaction, Task
from schemas.messages.base import Metadata
from tests.acceptance.fleet import Fleet
from tests.acceptance.scoring import scored
from tests.ratchet.adapters.making_adapters import published
from tests.ratchet.adapters.making_decisions import decided
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

SLOW = {"RATCHET_AGENT_ECHO_LATENCY_S": "0.25", "RATCHET_AGENT_PREFETCH": "16", "RATCHET_SAMPLES": "2"}
BACKLOG, GOLDEN = 4000, 12


def test_a_candidate_gets_through_its_gate_while_users_tasks_never_end(start_fleet: Callable[..., Fleet]) -> None:
    # given a fleet with a golden set, and with a minute of users' tasks before its agent
    fleet = start_fleet(environment=SLOW | scored({"v1.0.0": 0.3, "v1.0.1": 0.6}))
    adapters = fleet.folder / "adapters"
    (adapters / "small").mkdir(parents=True)
    asked = [json.dumps({"task_id": f"g{n}", "input": f"golden {n}"}) for n in range(GOLDEN)]
    (adapters / "small" / "golden.jsonl").write_text("\n".join(asked))
    with client.Fleet(fleet.amqp_url, namespace=fleet.namespace, replies=False) as users:
        users.submit_all(_task(n) for n in range(BACKLOG))
    wait_until(lambda: _waiting(fleet) > BACKLOG / 2, "the backlog before the agent")

    # when a candidate is registered
    store = RegistryStore.from_settings(FleetSettings(adapters_dir=adapters, logs_dir=fleet.logs))
    began = end_of_log(fleet.logs, INTERACTIONS)
    decided(store, registration(published(adapters), adapters))
    wait_until(lambda: store.read().agent("small").versions["v1.0.1"].state == "canary")

    # then it is on trial while the backlog still stands
    assert _waiting(fleet) > BACKLOG / 4

    # and from its first answer to its last, nine of ten were users', but for what was in hand at both ends
    lines = [Interaction.decode(line.data) for line in read(fleet.logs, INTERACTIONS, began)]
    own = [place for place, line in enumerate(lines) if is_own(line.arm.experiment_id)]
    assert len(own) == 2 * 2 * GOLDEN
    assert len(own) / (own[-1] - own[0] + 1) < 0.12


def _task(number: int) -> Task:
    about = Metadata(timestamp=datetime.now(UTC), source="test")
    return Task(task_id=f"user-{number}", input=f"question {number}", metadata=about)


def _waiting(fleet: Fleet) -> int:
    with open_connection(fleet.amqp_url) as connection:
        found = connection.channel().queue_declare(f"{fleet.namespace}work.small", passive=True)
    return int(found.method.message_count)
