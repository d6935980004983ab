"""Faults of messages: copies, another order, and messages that outsiders made to do harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache

import aio_pika
import pika
from aio_pika.abc import AbstractIncomingMessage, HeadersType
from hypothesis import strategies as st

from bench.faults.disk_faults import Strike
from bench.faults.rig import Rig
from bench.faults.steps import Step
from ratchet.bus.amqp.short_connection import open_connection
from tests.acceptance.bad_messages import BadMessage, bad_headers, drawn, kinds
from tests.acceptance.fleet import ORCHESTRATOR
from tests.acceptance.user import Line
from tests.ratchet.bus.hostile import Outsider, hostile_message

MEDDLED = "x-meddled"
AT_ONCE = 20
HELD_S = 0.05
ALONE_S = 0.5
RESULTS = "results"
MOST_GENERATED = 2_000
HOSTILE_QUEUES = ("tasks", "work.small", "responses", "rewards", "feedback")


def meddled(copies: int) -> Strike:
    """Someone takes messages off the step's queue, and puts so many copies of each back in another order.

    The orchestrator's queues have one consumer at a time: there it takes the place of a killed one.
    """

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        if step.service == ORCHESTRATOR and step.queue != RESULTS:
            with rig.supervisor.paused():
                rig.kill(step.service)
                async with _meddling(rig, step.queue, copies):
                    await asyncio.sleep(ALONE_S)
            yield
        else:
            rig.resume(step.service)
            async with _meddling(rig, step.queue, copies):
                yield

    return strike


@asynccontextmanager
async def _meddling(rig: Rig, name: str, copies: int) -> AsyncIterator[None]:
    """Within the block. What is held at its end goes back to the queue with the connection."""
    line = await Line.open(rig.broker.url)
    meddling = asyncio.create_task(_meddle(rig, line, name, copies))
    try:
        yield
    finally:
        meddling.cancel()
        with suppress(asyncio.CancelledError):
            await meddling
        await line.close()


async def _meddle(rig: Rig, line: Line, name: str, copies: int) -> None:
    held: list[AbstractIncomingMessage] = []

    async def hold(message: AbstractIncomingMessage) -> None:
        held.append(message)

    await line.channel.set_qos(prefetch_count=AT_ONCE)
    queue = await line.channel.get_queue(rig.fleet.namespace + name, ensure=False)
    await queue.consume(hold)
    while True:
        await asyncio.sleep(HELD_S)
        taken, held[:] = held[:], []
        rig.draw.shuffle(taken)
        for message in taken:
            headers = {**message.headers, MEDDLED: 1}
            for _ in range(1 if MEDDLED in message.headers else copies):
                await line.channel.default_exchange.publish(_copy(message, headers), queue.name, mandatory=True)
            await message.ack()


def _copy(message: AbstractIncomingMessage, headers: HeadersType) -> aio_pika.Message:
    return aio_pika.Message(
        message.body,
        headers=headers,
        type=message.type,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


def hostile(count: int) -> Strike:
    """So many bad messages over all queues: half by what is in them, half by their properties."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        rig.resume(step.service)
        rig.expected_letters += count
        outsider = await Outsider.connect(rig.broker.url)
        for _ in range(count - count // 2):
            queue = rig.draw.choice(HOSTILE_QUEUES)
            outsider.publish(rig.fleet.namespace + queue, hostile_message(rig.draw))
            await asyncio.sleep(0)
        bad = rig.draw.choices(_generated(min(MOST_GENERATED, count // 2)), k=count // 2)
        await asyncio.to_thread(_publish, rig, bad)
        yield
        await outsider.close()

    return strike


@cache
def _generated(count: int) -> list[BadMessage]:
    return drawn(st.one_of(kinds, bad_headers(kinds)), count)


def _publish(rig: Rig, messages: Sequence[BadMessage]) -> None:
    """With a client whose headers may be of any type."""
    with open_connection(rig.broker.url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for bad in messages:
            properties = pika.BasicProperties(type=bad.type, headers=bad.headers, delivery_mode=2)
            channel.basic_publish("", rig.fleet.namespace + bad.queue, bad.body, properties)
