"""The table of queues: what each is declared with, and that no message can fall out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.bus.retry_policy import RETRY_LADDER
from ratchet.bus.topology import (
    APPROVALS,
    AUDIT_SCORES,
    AUDITS,
    DEAD_EXCHANGE,
    DEAD_LETTERS,
    DELIVERY_LIMIT,
    KEPT_RESPONSES,
    READ_LIMIT,
    RESULTS,
    TASKS,
    UNROUTABLE,
    Topology,
    fleet_topology,
    work_queue,
)
from schemas import MESSAGES

FLEET = fleet_topology(("small", "big"), external_scorer=True, auditor=True, programs=True)


def test_each_agent_has_two_queues_of_work() -> None:
    assert {"work.small", "work.small.high", "work.big", "work.big.high"} <= FLEET.names


@pytest.mark.parametrize(("priority", "queue"), [(0, "work.a"), (4, "work.a"), (5, "work.a.high"), (9, "work.a.high")])
def test_work_waits_by_priority(priority: int, queue: str) -> None:
    assert work_queue("a", priority=priority) == queue


def test_an_external_scorer_an_auditor_and_programs_have_queues_only_where_there_are_some() -> None:
    assert FLEET.names - fleet_topology(("small", "big")).names == {KEPT_RESPONSES, AUDITS, AUDIT_SCORES, APPROVALS}


def test_every_queue_is_a_bounded_quorum_queue() -> None:
    for queue in FLEET.queues:
        assert queue.arguments["x-queue-type"] == "quorum"
        assert queue.arguments["x-max-length"] > 0


@pytest.mark.parametrize("agents", [("a",), ("a", "b", "c")])
@pytest.mark.parametrize("disk", [20 * 10**9, 10**9])
def test_all_queues_together_take_at_most_60_percent_of_the_brokers_disk(agents: tuple[str, ...], disk: int) -> None:
    fleet = fleet_topology(agents, external_scorer=True, auditor=True, programs=True, broker_disk=disk)
    bounds = [part.arguments["x-max-length-bytes"] for part in (*fleet.queues, *fleet.rungs)]
    assert min(bounds) > 0
    assert 0.55 * disk < sum(bounds) <= 0.6 * disk


def test_an_agent_more_changes_the_bounds_of_queues_of_work_alone() -> None:
    before, after = fleet_topology(("a",)), fleet_topology(("a", "b"))
    changed = [queue.name for queue in before.queues if after.queue(queue.name).max_bytes != queue.max_bytes]
    assert changed == ["work.a", "work.a.high"]


def test_only_results_may_drop_what_was_confirmed() -> None:
    dropping = [queue.name for queue in FLEET.queues if queue.arguments["x-overflow"] != "reject-publish"]
    assert dropping == [RESULTS]


def test_a_queue_that_someone_works_on_has_a_delivery_limit_and_a_way_to_the_dead_letters() -> None:
    worked_on = [queue for queue in FLEET.queues if queue.name not in (RESULTS, DEAD_LETTERS, UNROUTABLE)]
    for queue in worked_on:
        assert queue.arguments["x-delivery-limit"] == DELIVERY_LIMIT
        assert queue.arguments["x-dead-letter-exchange"] == DEAD_EXCHANGE
        assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"


def test_the_last_stations_dead_letter_nowhere() -> None:
    for name in (DEAD_LETTERS, UNROUTABLE):
        assert "x-dead-letter-exchange" not in FLEET.queue(name).arguments


def test_a_message_people_look_at_is_not_dropped_for_being_looked_at() -> None:
    for name in (RESULTS, DEAD_LETTERS, UNROUTABLE):
        assert FLEET.queue(name).arguments["x-delivery-limit"] == READ_LIMIT


def test_a_queue_is_declared_with_its_own_delivery_limit() -> None:
    assert replace(FLEET.queue(TASKS), delivery_limit=3).arguments["x-delivery-limit"] == 3


def test_a_rung_returns_its_messages_through_the_default_exchange() -> None:
    assert [rung.delay_ms for rung in RETRY_LADDER] == [5_000, 30_000, 300_000]
    for rung in RETRY_LADDER:
        assert rung.arguments["x-message-ttl"] == rung.delay_ms
        assert rung.arguments["x-dead-letter-exchange"] == ""
        assert "x-dead-letter-routing-key" not in rung.arguments


def test_every_queue_names_a_message_of_the_contract() -> None:
    known = {message.TYPE for message in MESSAGES} | {"any"}
    assert {queue.message for queue in FLEET.queues} <= known


def test_an_unknown_queue_is_an_error_that_names_it() -> None:
    with pytest.raises(KeyError, match="nonesuch"):
        Topology((FLEET.queue(TASKS),), ()).queue("nonesuch")
