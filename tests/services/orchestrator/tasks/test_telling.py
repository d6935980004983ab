"""One user who can't be told stops nobody else, and is given up after some tries."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from ratchet.service.errors import PublishTimeout
from schemas import Task
from tests.memory_bus import MemoryBus
from tests.services.orchestrator.house import REPLIES, House, answered, house, scored
from tests.waiting import until

POISON = "\ufffd" * 100
"""More bytes than an AMQP property may have."""


class PickyBus(MemoryBus):
    """Raises what no retry mends for some properties, as a broker's client does for those it can't write."""

    async def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        if properties.get("correlation_id") == POISON and queue == "results":
            raise ValueError("a short string of 300 bytes")
        await super().publish(queue, body, **properties)

    async def reply(self, reply_to: str, body: bytes, **properties: Any) -> bool:
        if properties.get("correlation_id") == POISON:
            raise ValueError("a short string of 300 bytes")
        if reply_to == "full":
            raise PublishTimeout("no confirm for the message to 'full' within 30 s")
        return await super().reply(reply_to, body, **properties)


def untold() -> float:
    return REGISTRY.get_sample_value("ratchet_results_untold_total") or 0.0


async def poisoned(fleet: House, task_id: str, **fields: Any) -> None:
    body = Task(task_id=task_id, input="x", **fields).encode()
    await fleet.bus.publish("tasks", body, type="", message_id="m", reply_to=REPLIES, correlation_id=POISON)


async def test_a_user_who_can_not_be_told_stops_no_deadline(tmp_path: Path) -> None:
    before = untold()
    async with house(tmp_path, bus=PickyBus) as fleet:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        await poisoned(fleet, "bad", deadline=soon)
        for number in range(3):
            await fleet.submit(Task(task_id=f"good{number}", input="x", deadline=soon))
        await fleet.work(4)

        results = await fleet.results(3)

        assert {result.task_id: result.status for result in results} == {f"good{n}": "expired" for n in range(3)}
        await until(lambda: untold() == before + 1)
        assert [line.task_id for line in fleet.logged() if line.task_id == "bad"] == ["bad"]
        assert fleet.orchestrator.trouble() is None
    async with house(tmp_path, bus=PickyBus) as again:
        await until(lambda: again.orchestrator.trouble() is None)
        assert again.orchestrator.ledger.positions() is not None
        with closing(sqlite3.connect(tmp_path / "index.sqlite")) as db:
            assert db.execute("SELECT count(*) FROM tasks WHERE work IS NOT NULL").fetchone() == (0,)


async def test_an_answer_whose_user_can_not_be_told_is_in_results_and_counted(tmp_path: Path) -> None:
    before = untold()
    async with house(tmp_path, bus=PickyBus) as fleet:
        await poisoned(fleet, "bad")
        (work,) = await fleet.work()

        await fleet.reward(scored(answered(work, "a"), 1.0))

        await until(lambda: untold() == before + 1)
        assert len(fleet.logged()) == 1
        assert [delivery.correlation_id for delivery in fleet.bus.deliveries_published("results")] == [None]
        assert fleet.bus.waiting("dead-letters") == []


async def test_a_reply_queue_that_takes_nothing_is_given_up_though_the_broker_is_there(tmp_path: Path) -> None:
    before = untold()
    async with house(tmp_path, bus=PickyBus) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"), reply_to="full")
        (work,) = await fleet.work()

        await fleet.reward(scored(answered(work, "a"), 1.0))

        await until(lambda: untold() == before + 1)
        assert fleet.bus.deliveries_published("results")


class SlowBus(MemoryBus):
    """Confirms no Result before it may."""

    async def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        if queue == "results":
            self.asked = getattr(self, "asked", 0) + 1
            await self.may_confirm.wait()
        await super().publish(queue, body, **properties)

    @cached_property
    def may_confirm(self) -> asyncio.Event:
        return asyncio.Event()


async def test_a_result_on_its_way_is_not_waited_for_by_whoever_looks_for_the_untold(tmp_path: Path) -> None:
    async with house(tmp_path, bus=SlowBus) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"), reply_to=None)
        (work,) = await fleet.work()
        await fleet.reward(scored(answered(work, "a"), 1.0))
        bus: Any = fleet.bus
        await until(lambda: getattr(bus, "asked", 0) == 1)

        async with asyncio.timeout(30):
            await fleet.orchestrator.parts.settler.send_pending_results()

        bus.may_confirm.set()
        await until(lambda: len(bus.deliveries_published("results")) == 1)
        await fleet.orchestrator.parts.settler.send_pending_results()
        assert bus.asked == 1
