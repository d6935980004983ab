"""Which replicas are there, and which of them answered a roll call."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from schemas.messages.adapter_event import AdapterReport
from services.orchestrator.promotion.replicas import FORGET_AFTER_S, Replicas, RollCall
from tests.ratchet.adapters.making_adapters import NOON

CALL = RollCall(announced_at=NOON, at=100.0)
SECOND = timedelta(seconds=1)


def report(replica: str, announced_at: datetime | None = NOON, **fields: object) -> AdapterReport:
    given = {"agent_id": "small", "replica": replica, "revision": 1, "announced_at": announced_at} | fields
    return AdapterReport.model_validate(given)


@pytest.mark.parametrize(
    ("announced_at", "heard_at", "counts"),
    [
        (NOON, 100.5, True),
        (NOON + SECOND, 100.5, True),
        (NOON - SECOND, 100.5, False),  # it lay in the queue since before the call
        (None, 100.5, True),  # an agent that does not say what it answers
        (None, 99.5, False),
    ],
)
def test_who_answered_the_call_counts(announced_at: datetime | None, heard_at: float, counts: bool) -> None:
    replicas = Replicas()
    replicas.record(report("one", announced_at, loaded=["v1.0.1"]), heard_at)
    replicas.record(report("two", announced_at, refused={"v1.0.1": "too large"}), heard_at)

    loading = replicas.loading("v1.0.1", 101.0, CALL)

    assert loading.loaded == counts
    assert loading.refused == ({"two": "too large"} if counts else {})


def test_without_a_call_all_count_that_were_heard_of_lately() -> None:
    replicas = Replicas()
    replicas.record(report("old", loaded=["v1.0.1"]), 100.0)
    replicas.record(report("new", loaded=["v1.0.1"]), 120.0)

    assert replicas.loading("v1.0.1", 121.0).loaded == 2
    assert replicas.loading("v1.0.1", 100.0 + FORGET_AFTER_S).loaded == 1


def test_the_newest_word_of_a_replica_counts() -> None:
    replicas = Replicas()
    replicas.record(report("one", loaded=["v1.0.1"]), 100.1)
    replicas.record(report("one", NOON + SECOND, loaded=[]), 100.2)

    assert replicas.loading("v1.0.1", 101.0, CALL).loaded == 0


@pytest.mark.parametrize(
    ("heard", "bases"),
    [
        ([], []),
        ([("one", "a", 100.0), ("other", "b", 120.0)], ["a", "b"]),
        ([("tells", "a", 100.0), ("can't tell", None, 101.0)], ["a"]),
        ([("gone", "a", 100.0), ("can't tell", None, 100.0 + FORGET_AFTER_S)], []),
    ],
)
def test_the_agent_runs_what_its_replicas_say(heard: list[tuple[str, str | None, float]], bases: list[str]) -> None:
    replicas = Replicas()
    for replica, name, at in heard:
        replicas.record(report(replica, base=name and {"name": name}), at)

    assert [base.name for base in replicas.bases] == bases
