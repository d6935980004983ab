"""The bus against a broker that dies, blocks or hangs up, and against a message that kills its consumer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import DEAD_LETTERS, RESPONSES, REWARDS, TASKS
from ratchet.service.errors import PublishTimeout
from tests.private_broker import PrivateBroker
from tests.ratchet.bus.bus_kit import Recorder, poison_topology, put, quick_topology
from tests.waiting import until

pytestmark = pytest.mark.broker


@dataclass
class Node:
    broker: PrivateBroker
    process: subprocess.Popen[bytes]

    def kill_and_restart(self) -> None:
        self.broker.kill(self.process)
        self.process = self.broker.start()
        self.broker.wait_until_ready(self.process)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    broker = PrivateBroker.on_free_ports(tmp_path_factory.mktemp("faulty"))
    node = Node(broker, broker.start())
    try:
        broker.wait_until_ready(node.process)
        yield node
    finally:
        broker.stop(node.process)


@pytest.fixture
async def bus(node: Node, request: pytest.FixtureRequest) -> AsyncIterator[RabbitBus]:
    name = request.node.name.removeprefix("test_")[:20] + "."
    bus = RabbitBus(node.broker.url, quick_topology(), name="test", namespace=name)
    await bus.start()
    yield bus
    await bus.stop(0)


async def recovered(bus: RabbitBus) -> None:
    """Says what trouble it is still in, if so. One try to connect may take a busy broker a quarter of a minute."""
    try:
        await until(lambda: bus.trouble() is None, timeout_s=120.0)
    except AssertionError as error:
        raise AssertionError(f"the bus did not recover: {bus.trouble()}") from error


async def test_a_broker_killed_in_full_flow_loses_nothing(node: Node, bus: RabbitBus) -> None:
    tasks = 2000
    rewards = Recorder()

    async def pass_on(delivery: Delivery) -> None:
        await put(bus, REWARDS, delivery.body)

    await bus.consume(TASKS, pass_on, prefetch=64)
    await bus.consume(REWARDS, rewards, prefetch=64)
    publishing = asyncio.gather(*(_put_late(bus, number) for number in range(tasks)))
    await rewards.until(100)

    await asyncio.to_thread(node.kill_and_restart)

    await publishing
    await until(lambda: len(set(rewards.bodies)) == tasks, "a reward for each task")
    assert set(rewards.bodies) == {b"%d" % number for number in range(tasks)}
    assert bus.trouble() is None


async def _put_late(bus: RabbitBus, number: int) -> None:
    await asyncio.sleep(number * 0.001)  # real time: all through the broker's restart
    await put(bus, TASKS, b"%d" % number)


async def test_consumers_and_publishers_come_back_when_the_broker_hangs_up(node: Node, bus: RabbitBus) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)

    for round_ in range(2):
        await asyncio.to_thread(node.broker.control, "close_all_connections", "maintenance")
        await put(bus, TASKS, b"%d" % round_)
        await recovered(bus)

    await until(lambda: {b"0", b"1"} <= set(handler.bodies), "both messages")


async def test_a_handler_outlives_its_channel_and_its_ack_is_dropped(
    node: Node, bus: RabbitBus, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()

    async def hold(_delivery: Delivery) -> None:
        await gate.wait()

    handler = Recorder(hold)
    await bus.consume(TASKS, handler, prefetch=1, stalled_after_s=None)
    await put(bus, TASKS, b"t")
    await handler.until(1)

    await asyncio.to_thread(node.broker.control, "close_all_connections", "maintenance")
    await until(lambda: "subscribing again" in caplog.text, "the loss")  # which may be over when the command returns
    await recovered(bus)
    gate.set()

    await handler.until(2)
    assert [delivery.redelivered for delivery in handler.got] == [False, True]
    await until(lambda: _is_empty(bus, TASKS), "the redelivered message's ack")
    assert bus.trouble() is None


async def _is_empty(bus: RabbitBus, queue: str) -> bool:
    return (await bus.state(queue)).messages == 0


async def test_an_alarm_bounds_publishes_and_what_timed_out_does_not_arrive_later(node: Node) -> None:
    bus = RabbitBus(node.broker.url, quick_topology(), name="test", namespace="alarm.", publish_timeout_s=6.0)
    await bus.start()
    try:
        await asyncio.to_thread(node.broker.control, "set_vm_memory_high_watermark", "0.000001")
        with pytest.raises(PublishTimeout):
            for _ in range(1000):  # the broker looks at its memory once a second
                await put(bus, TASKS, b"written before the broker said so")
                await asyncio.sleep(0.01)  # real time: between publishes
        await until(lambda: "alarm" in (bus.trouble() or ""), "the alarm")
        assert "alarm" in (bus.delivery_trouble(RESPONSES) or "")
        with pytest.raises(PublishTimeout, match="never sent"):
            await put(bus, TASKS, b"held back")
    finally:
        await asyncio.to_thread(node.broker.control, "set_vm_memory_high_watermark", "0.4")

    await recovered(bus)
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)
    await put(bus, TASKS, b"afterwards")
    await until(lambda: b"afterwards" in handler.bodies, "the message after the alarm")
    assert b"held back" not in handler.bodies
    await bus.stop(0)


async def test_a_message_that_kills_its_consumer_meets_its_end_alone(node: Node) -> None:
    bus = RabbitBus(node.broker.url, poison_topology(), name="test", namespace="poison.")
    await bus.start()
    innocents = [b"%d" % number for number in range(60)]
    for body in (*innocents[:20], b"poison", *innocents[20:]):
        await put(bus, RESPONSES, body)
    letters, rewards = Recorder(), Recorder()
    await bus.consume(DEAD_LETTERS, letters, prefetch=8)
    await bus.consume(REWARDS, rewards, prefetch=64)

    deaths = await _run_victim_until(node, lambda: bool(letters.got) and set(innocents) <= set(rewards.bodies))

    assert letters.bodies == [b"poison"]
    assert letters.got[0].headers["x-death"][0]["reason"] == "delivery_limit"
    assert 3 <= len(deaths) <= 6
    assert set(deaths) == {b"-9"}
    await bus.stop(0)


async def _run_victim_until(node: Node, done: Callable[[], bool]) -> list[bytes]:
    """Returns the exit codes of its lives."""
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.ratchet.bus.poison_child", node.broker.url, "poison."),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        await until(done, "the poison in the dead letters and everyone else answered")
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        lines, _ = await victim.communicate()
    return lines.split()
