"""Strikes: faults of processes, disks, connections, the clock and messages. A strike lasts as long as its block."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache

import aio_pika
import pika
from aio_pika.abc import AbstractIncomingMessage, HeadersType
from hypothesis import strategies as st

from bench.faults.rig import ADAPTERS, INDEX, LOGS, Rig
from bench.faults.steps import Step
from ratchet.bus.amqp.short_connection import open_connection
from tests.acceptance.bad_messages import BadMessage, bad_headers, drawn, kinds
from tests.acceptance.fleet import ORCHESTRATOR, FleetError
from tests.acceptance.user import Line
from tests.disks import remount
from tests.ratchet.bus.hostile import Outsider, hostile_message

Strike = Callable[[Rig, Step], AbstractAsyncContextManager[None]]

TAKE_OVER_S = 60.0
LEAVE_S = 30.0


@asynccontextmanager
async def kill(rig: Rig, step: Step) -> AsyncIterator[None]:
    rig.kill(step.service)
    yield


@asynccontextmanager
async def halt(rig: Rig, step: Step) -> AsyncIterator[None]:
    yield
    rig.resume(step.service)


@asynccontextmanager
async def halt_leader(rig: Rig, step: Step) -> AsyncIterator[None]:
    """A standby takes over from the orchestrator that hangs; continued, that one has to leave by itself."""
    hangs = rig.fleet[step.service]
    standby = await asyncio.to_thread(rig.start_standby)
    try:
        await asyncio.to_thread(standby.wait_until_ready, TAKE_OVER_S)
        rig.lead(standby)
    except FleetError as error:
        rig.complaints.append(f"{step.name}: no standby took over within {TAKE_OVER_S:.0f} s: {error}")
        standby.kill()
    yield
    rig.supervisor.resume(hangs)
    if rig.fleet[step.service] is standby and not await rig.supervisor.ends(hangs, LEAVE_S):
        rig.complaints.append(f"{step.name}: the orchestrator that hung works on beside its successor")
        hangs.kill()


@asynccontextmanager
async def kill_broker(rig: Rig, step: Step) -> AsyncIterator[None]:
    await asyncio.to_thread(rig.broker.kill)
    rig.resume(step.service)
    yield
    await asyncio.to_thread(rig.broker.start)


MOST_FREE_BYTES = 1024 * 1024


def full(folder: str) -> Strike:
    """The file system under this folder has room for 0 to 1 MB."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        disk = rig.disks[folder]
        disk.leave(rig.draw.choice((0, rig.draw.randrange(64 * 1024), rig.draw.randrange(MOST_FREE_BYTES))))
        rig.resume(step.service)
        yield
        disk.empty()

    return strike


READY_WITHIN_S = 60.0


def failing(error: int, *, writes_only: bool = False) -> Strike:
    """Return a strike after which every call on the files of a folder fails with this error, on open files too."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        before = await rig.count_retries()
        rig.preload.fail(error, rig.fleet.folder / rig.draw.choice((LOGS, INDEX, ADAPTERS)), writes_only=writes_only)
        rig.resume(step.service)
        yield
        if (retried := await rig.count_retries() - before) > 0:
            rig.complaints.append(f"{step.name}: {retried} messages had an attempt counted for a failing disk")
        rig.preload.fail_no_more()

    return strike


@asynccontextmanager
async def read_only(rig: Rig, step: Step) -> AsyncIterator[None]:
    """The kernel allows that only while no file is open for writing: who writes the logs is killed, too."""
    folder = rig.disks[LOGS].folder
    with rig.supervisor.giving_up_allowed():
        with rig.supervisor.pause():
            for service in {step.service, ORCHESTRATOR}:
                rig.kill(service)
            await _remount(rig, "ro")
        yield
        await asyncio.to_thread(remount, folder, "rw")
        async with asyncio.timeout(READY_WITHIN_S):
            for service in {step.service, ORCHESTRATOR}:
                while (await asyncio.to_thread(rig.fleet[service].get, "/readyz"))[0] != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def _remount(rig: Rig, how: str) -> None:
    for _ in range(50):
        try:
            await asyncio.to_thread(remount, rig.disks[LOGS].folder, how)
            return
        except subprocess.CalledProcessError:  # another service has a file open, for a moment
            await asyncio.sleep(0.05)
    rig.complaints.append(f"the disk could not be made {how}: a killed service's files are still open")


HIGH_WATERMARK = "0.4"


@asynccontextmanager
async def partition(rig: Rig, step: Step) -> AsyncIterator[None]:
    """Let nothing pass between the service and the broker; half of the time the connections are gone after it."""
    proxy = rig.proxies[step.service]
    proxy.swallow()
    rig.resume(step.service)
    yield
    if rig.draw.random() < 0.5:
        proxy.cut()
    proxy.pass_on()


@asynccontextmanager
async def cut(rig: Rig, step: Step) -> AsyncIterator[None]:
    """Reset all connections of the service, and again in the middle."""
    rig.proxies[step.service].cut()
    rig.resume(step.service)
    yield
    rig.proxies[step.service].cut()


@asynccontextmanager
async def memory_alarm(rig: Rig, step: Step) -> AsyncIterator[None]:
    """The broker blocks every publisher."""
    await asyncio.to_thread(rig.broker.control, "set_vm_memory_high_watermark", "0.00001")
    rig.resume(step.service)
    yield
    await asyncio.to_thread(rig.broker.control, "set_vm_memory_high_watermark", HIGH_WATERMARK)


DAY, YEAR = 86_400, 365 * 86_400


def clock_step(seconds: int) -> Strike:
    """Half of the time the service does not run meanwhile: it never sees the clock that others go by."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        rig.preload.set_clock(seconds)
        if rig.draw.random() < 0.5:
            rig.resume(step.service)
        yield
        rig.preload.set_clock(0)
        rig.resume(step.service)

    return strike


MEDDLED = "x-meddled"
AT_ONCE = 20
HELD_S = 0.05
ALONE_S = 0.5
RESULTS = "results"
MOST_GENERATED = 2_000
HOSTILE_QUEUES = ("tasks", "work.small", "responses", "rewards", "feedback")


def meddle(copies: int) -> Strike:
    """Return a strike that takes messages off the step's queue and puts `copies` of each back in another order.

    The orchestrator's queues have one consumer at a time: there it takes the place of a killed one.
    """

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        if step.service == ORCHESTRATOR and step.queue != RESULTS:
            with rig.supervisor.pause():
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
    """Meddle within the block. Closing the connection then puts the messages that are held back on the queue."""
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
    """Return a strike of so many bad messages over all queues: half bad in their body, half in their properties."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        rig.resume(step.service)
        rig.expected_letters += count
        outsider = await Outsider.connect(rig.broker.url)
        for _ in range(count - count // 2):
            queue = rig.draw.choice(HOSTILE_QUEUES)
            outsider.publish(rig.fleet.namespace + queue, hostile_message(rig.draw))
            await asyncio.sleep(0)
        bad = rig.draw.choices(_generate(min(MOST_GENERATED, count // 2)), k=count // 2)
        await asyncio.to_thread(_publish, rig, bad)
        yield
        await outsider.close()

    return strike


@cache
def _generate(count: int) -> list[BadMessage]:
    return drawn(st.one_of(kinds, bad_headers(kinds)), count)


def _publish(rig: Rig, messages: Sequence[BadMessage]) -> None:
    """Publish with a client whose headers may be of any type."""
    with open_connection(rig.broker.url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for bad in messages:
            properties = pika.BasicProperties(type=bad.type, headers=bad.headers, delivery_mode=2)
            channel.basic_publish("", rig.fleet.namespace + bad.queue, bad.body, properties)
