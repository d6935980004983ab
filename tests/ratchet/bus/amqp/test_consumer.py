"""What a handler begins with, and what is left of it, without a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ratchet.bus.amqp.consumer import Consumer
from ratchet.bus.amqp.frames import Properties
from ratchet.bus.in_hand import FEWEST, ByteBudget, Progress
from ratchet.bus.protocol import Delivery, Handler
from ratchet.service.telemetry import task_in_hand
from tests.waiting import until


class Subscribed:
    """One channel that is there, and what was settled on it."""

    def __init__(self) -> None:
        self.alive = True
        self.settled: list[int] = []

    def deliver(self, tag: int) -> None: ...

    def settle(self, tag: int) -> None:
        self.settled.append(tag)

    def close(self) -> None:
        self.alive = False


def consuming(handler: Handler, prefetch: int, budget: ByteBudget | None = None) -> tuple[Consumer, Any, Subscribed]:
    """A consumer, what gives it a delivery, and where it settles."""
    nothing: Any = None
    declaration: Any = SimpleNamespace(wire=lambda queue: queue)
    consumer = Consumer(
        "tasks",
        handler,
        prefetch,
        link=nothing,
        declaration=declaration,
        failures=nothing,
        budget=budget or ByteBudget(),
        progress=Progress(None),
    )
    subscribed: Any = Subscribed()
    consumer._wide, consumer._subscription = True, subscribed
    receive = consumer._receiver(subscribed)
    return consumer, lambda tag, body: receive(tag, False, Properties(), body), subscribed


async def test_one_that_waited_for_its_turn_begins_as_if_it_were_the_first() -> None:
    seen: list[tuple[bytes, str | None]] = []

    async def handle(delivery: Delivery) -> None:
        seen.append((delivery.body, task_in_hand.get()))
        task_in_hand.set(delivery.body.decode())
        await asyncio.sleep(0)

    consumer, give, subscribed = consuming(handle, prefetch=1)
    for tag in (1, 2, 3):
        give(tag, b"%d" % tag)

    await until(lambda: subscribed.settled == [1, 2, 3])

    assert seen == [(b"1", None), (b"2", None), (b"3", None)]
    assert not consumer.running


async def test_a_large_one_waits_for_room_that_another_queue_gives_back() -> None:
    budget, begun, go_on = ByteBudget(most=100 * FEWEST), list[bytes](), asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        begun.append(delivery.body[:1])
        await go_on.wait()

    one, give_one, of_one = consuming(handle, 8, budget)
    other, give_other, of_other = consuming(handle, 8, budget)
    give_one(1, b"a" * 60)
    give_other(1, b"b" * 30)
    give_other(2, b"c" * 60)
    await until(lambda: len(begun) == 2)

    go_on.set()

    await until(lambda: of_one.settled == [1] and of_other.settled == [1, 2])
    assert begun == [b"a", b"b", b"c"]
    assert not one.running and not other.running


async def test_what_breaks_beyond_its_handler_closes_the_channel_and_leaves_nothing_in_hand() -> None:
    async def handle(delivery: Delivery) -> None:
        raise ValueError("and there is nobody to take what failed")

    consumer, give, subscribed = consuming(handle, prefetch=4)

    give(1, b"x")

    await until(lambda: not subscribed.alive)
    assert (consumer.unfinished, subscribed.settled, not consumer.running) == (1, [], True)
