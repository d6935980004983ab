"""Recorded conversations while the agent, `ratchet record` and the broker are killed. At length: `bench.recorded`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.recorded.books import measure
from bench.recorded.rig import Plan
from services.cli.fleet.local_broker import server_folder
from tests.acceptance.brokers import mortal_broker

pytestmark = [
    pytest.mark.long,
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(server_folder() is None, reason="kills its broker, so it needs a private RabbitMQ node"),
]


def test_each_conversation_is_answered_whole_or_ends_with_a_reason_whatever_is_killed(tmp_path: Path) -> None:
    plan = Plan(tasks=5, samples=2, turns=8, at_once=3, left=frozenset({"talk-1"}))

    with mortal_broker(tmp_path / "broker") as broker:
        found = measure(broker, tmp_path, plan, seed=1)

    assert found["complaints"] == []
    assert {"agent", "recorder", "broker"} <= found["kills"].keys()
    assert (found["answered"], found["taught"]) == (4, 8) or found["answered"] == 5
    assert sum(found["ended"].values()) == 5 - found["answered"]
