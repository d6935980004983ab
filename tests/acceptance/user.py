"""A user of the fleet with a client that is not ours (aio-pika): publishes tasks, reads `results`, keeps the ledger.

It knows the queues' names and the JSON, and imports nothing of the fleet. What the broker has not confirmed it
publishes again, under the same task id, until it is; after a lost connection it connects again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

from tests.acceptance.ledger import Ledger

CONNECT_S = 10.0
CONFIRM_S = 15.0
PAUSE_S = 0.2
LOOK_EVERY_S = 0.5
AT_ONCE = 100
HURRY = timedelta(seconds=3)
TROUBLES = (AMQPError, ChannelInvalidStateError, OSError, TimeoutError)
QUEUES_AT_REST = ("tasks", "work.small", "work.small.high", "responses", "responses.draft", "rewards",
                  "retry.5s", "retry.30s", "retry.5m", "dead-letters", "unroutable", "results")  # fmt: skip


class Lost(Exception):
    """The connection or channel is gone; whatever had no confirm is in doubt."""


@dataclass(frozen=True)
class Line:
    """A connection with its one channel; closed as a whole."""

    connection: AbstractConnection
    channel: AbstractChannel

    @classmethod
    async def open(cls, amqp_url: str) -> Line:
        """Open a connection and its channel. Raises Lost."""
        with losing():
            connection = await asyncio.wait_for(aio_pika.connect(amqp_url), CONNECT_S)
            return cls(connection, await connection.channel(publisher_confirms=True, on_return_raises=True))

    async def close(self) -> None:
        with suppress(*TROUBLES):
            await self.connection.close()


@contextmanager
def losing() -> Iterator[None]:
    """Raise Lost for each error by which this client reports a lost connection.

    A lost connection also cancels what waits on it; only a cancellation of this very task is passed on.
    """
    try:
        yield
    except (*TROUBLES, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise Lost(repr(error)) from error


class User:
    """One connection to publish on and one to read from, each opened again after every loss."""

    def __init__(self, amqp_url: str, namespace: str = "", *, samples: int = 2, hurried: float = 0.0) -> None:
        """`hurried`: share of the tasks that name a deadline a few seconds ahead."""
        self.ledger = Ledger()
        self._hurried = hurried
        self._url = amqp_url
        self._namespace = namespace
        self._samples = samples
        self._prefix = uuid.uuid4().hex[:8]
        self._line: Line | None = None
        self._connecting = asyncio.Lock()
        self._answered = asyncio.Event()

    async def publish(self, count: int | None, *, per_s: float, until: asyncio.Event | None = None) -> None:
        """Publish `count` tasks at this rate (or until told to stop) and return when all are confirmed."""
        room = asyncio.Semaphore(AT_ONCE)
        number = 0
        async with asyncio.TaskGroup() as group:
            while number != count and not (until and until.is_set()):
                await room.acquire()
                one = group.create_task(self._publish_one(f"{self._prefix}-{number:07d}"))
                one.add_done_callback(lambda _: room.release())
                number += 1
                await asyncio.sleep(1 / per_s)  # real time: a rate

    async def _publish_one(self, task_id: str) -> None:
        self.ledger.attempted.add(task_id)
        deadline = None
        if random.random() < self._hurried:
            self.ledger.may_expire.add(task_id)
            deadline = datetime.now(UTC) + HURRY
        body = self.task(task_id, deadline)
        while task_id not in self.ledger.acknowledged:
            self.ledger.publishes += 1
            try:
                await self._publish_once("tasks", body)
            except Lost:
                await asyncio.sleep(PAUSE_S)  # real time: before it tries again
            else:
                self.ledger.acknowledged.add(task_id)

    async def send(self, queue: str, body: bytes) -> None:
        """Publish a message, again after each loss, until the broker confirms it."""
        while True:
            try:
                await self._publish_once(queue, body)
            except Lost:
                await asyncio.sleep(PAUSE_S)  # real time: before it tries again
            else:
                return

    def task(self, task_id: str, deadline: datetime | None = None) -> bytes:
        """A task whose right answer is its input."""
        text = f"say {task_id}"
        metadata = {"timestamp": datetime.now(UTC).isoformat(), "source": "acceptance"}
        fields = {"task_id": task_id, "input": text, "metadata": metadata, "reference": text, "samples": self._samples}
        if deadline is not None:
            fields["deadline"] = deadline.isoformat()
        return json.dumps(fields).encode()

    def is_right(self, result: Mapping[str, Any]) -> bool:
        """Tell whether the answer and its score are right: the echo, worth 1, or 0 with an adapter."""
        version, _, answer = (result.get("response") or "").rpartition(": ")
        return bool(answer == f"say {result['task_id']}" and result.get("score") == (0.0 if version else 1.0))

    async def _publish_once(self, queue: str, body: bytes) -> None:
        line = await self._open_line()
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        with losing():
            publish = line.channel.default_exchange.publish(message, self._namespace + queue, mandatory=True)
            await asyncio.wait_for(publish, CONFIRM_S)

    async def _open_line(self) -> Line:
        async with self._connecting:
            if self._line is None or self._line.channel.is_closed:
                await self.close()
                self._line = await Line.open(self._url)
            return self._line

    async def close(self) -> None:
        """Close the connection that publishes; the other closes with `read_results`."""
        if self._line is not None:
            await self._line.close()

    async def read_results(self) -> None:
        """Read Results until cancelled."""
        while True:
            with suppress(Lost):
                await self._read_until_lost(await Line.open(self._url))
            await asyncio.sleep(PAUSE_S)  # real time: before it tries again

    async def _read_until_lost(self, line: Line) -> None:
        gone = asyncio.Event()
        line.channel.close_callbacks.add(lambda *_: gone.set())
        try:
            with losing():
                await line.channel.set_qos(prefetch_count=AT_ONCE)
                queue = await line.channel.get_queue(self._namespace + "results", ensure=False)
                await queue.consume(self._on_result)
                await gone.wait()
        finally:
            await line.close()

    async def _on_result(self, message: AbstractIncomingMessage) -> None:
        result = json.loads(message.body)
        task_id = result["task_id"]
        if result["status"] != "ok":
            self.ledger.not_ok[task_id] = f"{result['status']}: {result.get('reason')}"
        elif not self.is_right(result):
            self.ledger.not_ok[task_id] = f"wrong: {result.get('response')!r}, score {result.get('score')}"
        if task_id in self.ledger.may_expire:
            self.ledger.not_ok.pop(task_id, None)
        self.ledger.answers[task_id] += 1
        self.ledger.told[task_id].add(result["status"])
        self._answered.set()
        with suppress(*TROUBLES):
            await message.ack()

    async def wait_for_answers(self, timeout_s: float) -> None:
        """Wait until every acknowledged task is answered, or no answer came for so long: then the ledger tells."""
        with suppress(TimeoutError):
            while self.ledger.unanswered:
                self._answered.clear()
                async with asyncio.timeout(timeout_s):
                    await self._answered.wait()

    async def depths(self) -> dict[str, int]:
        """Count the messages of each queue that must be empty when the fleet is at rest."""
        connection = await aio_pika.connect(self._url)
        async with connection:
            channel = await connection.channel()
            names = [self._namespace + name for name in QUEUES_AT_REST]
            declared = [await channel.declare_queue(name, passive=True) for name in names]
            return {queue.name: queue.declaration_result.message_count or 0 for queue in declared}

    async def wait_until_at_rest(self, timeout_s: float, dead_letters: int = 0) -> dict[str, int]:
        """Wait until all queues are empty and at least `dead_letters` dead letters came. Return the wrong depths."""
        deadline = time.monotonic() + timeout_s
        letters = self._namespace + "dead-letters"
        while True:
            depths = await self.depths()
            left = {name: depth for name, depth in depths.items() if depth and name != letters}
            if depths.get(letters, 0) < dead_letters:
                left[letters] = depths.get(letters, 0)
            if not left or time.monotonic() > deadline:
                return left
            await asyncio.sleep(LOOK_EVERY_S)  # real time: between two looks at the broker
