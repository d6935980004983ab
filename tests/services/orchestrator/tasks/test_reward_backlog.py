"""Answers that waited through an outage longer than their deadline were in time: they are told `ok`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import REWARDS, fleet_topology
from schemas import Task
from services.orchestrator.orchestrator import SWEEP_EVERY_S
from services.orchestrator.tasks.reward_backlog import RewardBacklog
from tests.memory_bus import MemoryBus
from tests.services.orchestrator.house import MINUTES, PACE, House, answered, house, scored
from tests.waiting import settled, until

TASKS = 40
SWEEPS_S = 2.5 * SWEEP_EVERY_S * PACE


async def test_rewards_that_waited_are_told_ok_though_their_deadlines_passed(tmp_path: Path) -> None:
    async with house(tmp_path, pace=MINUTES) as fleet:  # no sweep ends them here, however slow the machine is
        soon = datetime.now(UTC) + timedelta(seconds=2)
        for number in range(TASKS):
            await fleet.submit(Task(task_id=f"t{number}", input="x", deadline=soon))
        works = await fleet.work(TASKS)
    await until(lambda: datetime.now(UTC) > soon + timedelta(seconds=0.1), "their deadlines have passed")

    again = House(tmp_path)
    await again.bus.start()
    for work in works:
        await again.reward(scored(answered(work, "a"), 1.0))
    await again.orchestrator.start()
    await settled(SWEEPS_S)  # a sweep, and another: nothing is consumed yet
    for subscription in again.orchestrator.subscriptions():
        await again.bus.consume(subscription.queue, subscription.handler, prefetch=subscription.prefetch)

    results = await again.results(TASKS)
    await settled(SWEEPS_S)
    assert [result.status for result in results] == ["ok"] * TASKS
    assert len(again.replies) == TASKS
    await again.close()


class FullQueueBus(MemoryBus):
    """`work.other` is full: what is published there is never confirmed, and that is a trouble, as on RabbitMQ."""

    publishes_held = 0

    async def publish(self, queue: str, body: bytes, **how: Any) -> None:
        if queue == "work.other":
            self.publishes_held += 1
            await asyncio.Event().wait()
        await super().publish(queue, body, **how)

    def trouble(self) -> str | None:
        held = "a message to 'work.other' waits for its confirm" if self.publishes_held else None
        return held or super().trouble()


async def test_the_full_queue_of_one_agent_holds_up_no_expiry_of_anothers_tasks(tmp_path: Path) -> None:
    async with house(tmp_path, bus=FullQueueBus) as fleet:
        # given an agent that is away, and whose queue is full
        await fleet.submit(Task(task_id="to-other", input="x", agent_id="other"))
        await until(lambda: fleet.bus.trouble() is not None, "the trouble")

        # when the deadline of another agent's task passes
        soon = datetime.now(UTC) + timedelta(seconds=1)
        await fleet.submit(Task(task_id="to-small", input="x", agent_id="small", deadline=soon))

        # then its user is told, and the logs may be cut
        (result,) = await fleet.results()
        assert (result.task_id, result.status) == ("to-small", "expired")
        assert fleet.bus.trouble() is not None
        assert fleet.orchestrator.parts.backlog.cleared


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def handled(delivery: Delivery) -> None:
    return None


async def test_the_backlog_is_taken_anew_after_the_process_stood_still_and_never_waited_for_too_long() -> None:
    bus, clock = MemoryBus(fleet_topology(("small",))), Clock()
    backlog = RewardBacklog(bus, clock, longest_s=60.0)
    assert not await backlog.is_cleared()  # the bus is not there yet
    await bus.start()
    assert await backlog.is_cleared()

    bus.fail_publishes(1)  # the broker takes nothing, and Rewards wait at the scorer
    assert not await backlog.is_cleared()
    bus.fail_publishes(0)
    assert await backlog.is_cleared()

    clock.seconds = 1.0
    await bus.publish(REWARDS, b"{}", type="", message_id="m")
    assert await backlog.is_cleared()
    clock.seconds = 20.0
    assert not await backlog.is_cleared()
    await backlog.count_rewards(handled)(Delivery(REWARDS, b"{}"))
    assert await backlog.is_cleared()

    clock.seconds = 40.0
    for second in range(40, 100):
        clock.seconds = second
        assert not await backlog.is_cleared()
    clock.seconds = 101.0
    assert await backlog.is_cleared()
