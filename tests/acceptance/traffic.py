"""Users who ask until something has happened, with a foreign client (aio-pika)."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from tests.acceptance.fleet import Fleet

MOST_OPEN = 150
WAVE = 25


class Traffic:
    """`answered`: task id → the adapter version of its Result; `asked`: all the broker confirmed."""

    def __init__(self, channel: AbstractChannel, namespace: str) -> None:
        self.asked: set[str] = set()
        self.answered: dict[str, str] = {}
        self.not_ok: dict[str, str] = {}
        self._came = asyncio.Event()
        self._channel = channel
        self._namespace = namespace
        self._prefix = uuid.uuid4().hex[:8]

    async def until(self, happened: Callable[[], bool], *, most: int = 4000, timeout_s: float = 120.0) -> int:
        """Ask in waves until `happened()` is true; return the number of tasks. Open tasks stay open."""
        before = len(self.asked)
        async with asyncio.timeout(timeout_s):
            while not happened():
                assert len(self.asked) - before < most, f"it had not happened after {most} tasks"
                if self.open < MOST_OPEN:
                    await asyncio.gather(*(self._ask() for _ in range(WAVE)))
                await asyncio.sleep(0.01)  # real time: between waves
        return len(self.asked) - before

    async def rest(self, timeout_s: float = 120.0) -> None:
        """Wait until all that was asked is answered."""
        async with asyncio.timeout(timeout_s):
            while self.open:
                self._came.clear()
                await self._came.wait()

    @property
    def open(self) -> int:
        return len(self.asked - self.answered.keys())

    async def send(self, queue: str, body: bytes) -> None:
        """Publish a message; return once the broker has confirmed it."""
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, self._namespace + queue, mandatory=True)

    async def _ask(self) -> None:
        task_id = f"{self._prefix}-{len(self.asked):06}"
        self.asked.add(task_id)
        await self.send("tasks", json.dumps({"task_id": task_id, "input": f"say {task_id}", "samples": 2}).encode())

    async def on_result(self, message: AbstractIncomingMessage) -> None:
        result = json.loads(message.body)
        if result["status"] != "ok":
            self.not_ok[result["task_id"]] = f"{result['status']}: {result.get('reason')}"
        self.answered[result["task_id"]] = result.get("adapter_version", "")
        self._came.set()
        await message.ack()


@asynccontextmanager
async def traffic(fleet: Fleet) -> AsyncIterator[Traffic]:
    connection = await aio_pika.connect(fleet.amqp_url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.set_qos(prefetch_count=200)
        users = Traffic(channel, fleet.namespace)
        results = await channel.get_queue(fleet.namespace + "results", ensure=False)
        await results.consume(users.on_result)
        yield users
