"""Helpers of the bus tests: a topology with a quick ladder, a recording handler, both buses behind one interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import aio_pika

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Bus, Delivery
from ratchet.bus.retry_policy import Rung
from ratchet.bus.topology import Topology, fleet_topology
from tests.memory_bus import MemoryBus
from tests.waiting import until

QUICK_LADDER = (Rung("retry.5s", 30), Rung("retry.30s", 60), Rung("retry.5m", 90))
ARRIVES_WITHIN_S = 30.0


def quick_topology() -> Topology:
    return replace(fleet_topology(("small",), external_scorer=True), rungs=QUICK_LADDER)


def poison_topology() -> Topology:
    """Return a topology whose broker gives a message up after few deliveries: each kills a process."""
    topology = quick_topology()
    return replace(topology, queues=tuple(replace(queue, delivery_limit=3) for queue in topology.queues))


@dataclass
class Recorder:
    """A handler that keeps each delivery, and then calls `act`."""

    act: Callable[[Delivery], Awaitable[None]] | None = None
    got: list[Delivery] = field(default_factory=list)

    async def __call__(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        if self.act is not None:
            await self.act(delivery)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.got]

    async def until(self, count: int) -> list[Delivery]:
        await until(lambda: len(self.got) >= count, f"delivery {count} (got {len(self.got)})")
        return self.got


async def put(bus: Bus, queue: str, body: bytes, message_id: str | None = None) -> None:
    await bus.publish(queue, body, type="task.v1", message_id=message_id or body.decode())


class MemoryFleet:
    """Services that share one broker, which the double plays."""

    def __init__(self) -> None:
        self.bus = MemoryBus(quick_topology(), time_scale=1.0)

    async def open_reply_queue(self, name: str) -> Callable[[], Awaitable[list[Delivery]]]:
        queue = self.bus.open_reply_queue(name)

        async def read() -> list[Delivery]:
            await until(lambda: bool(queue), "the reply")
            return list(queue)

        return read


class RabbitFleet:
    """The same over RabbitMQ, with an independent client in the user's place."""

    def __init__(self, amqp_url: str, namespace: str) -> None:
        self.amqp_url = amqp_url
        self.bus = RabbitBus(amqp_url, quick_topology(), name="contract", namespace=namespace)

    async def open_reply_queue(self, name: str) -> Callable[[], Awaitable[list[Delivery]]]:
        connection = await aio_pika.connect(self.amqp_url)
        queue = await (await connection.channel()).declare_queue(name, exclusive=True)

        async def read() -> list[Delivery]:
            message = await queue.get(timeout=ARRIVES_WITHIN_S)
            assert message is not None
            await message.ack()
            await connection.close()
            return [
                Delivery(
                    name, message.body, message.type, message.message_id, correlation_id=str(message.correlation_id)
                )
            ]

        return read
