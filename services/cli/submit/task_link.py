"""A self-reconnecting AMQP connection that publishes tasks with confirms and receives their results. No waiting here.

The reply queue is not exclusive but expires an hour after its last consumer: so it outlives a lost connection, and
with it the results that arrive meanwhile.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker
from pika.spec import Basic, BasicProperties

from ratchet.bus.amqp.short_connection import parameters, unreachable
from ratchet.bus.topology import EXCHANGE, TASKS
from ratchet.service.errors import RatchetError
from schemas.messages.base import DecodeError
from schemas.messages.result import Result
from schemas.messages.task import Task
from services.cli.terminal import CommandError

ACCESS_REFUSED = 403
NOT_FOUND = 404
REPLY_EXPIRES_MS = 3_600_000
PATIENCE_S = 60.0
"""How long a lost broker is waited for. One that is not there at first is not waited for."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0


class TaskLink:
    """Driven by `loop`. `changed` is set when a result arrived, a confirm came, it got ready, or a `fault` ended it."""

    def __init__(self, url: str, namespace: str, loop: asyncio.AbstractEventLoop, *, replies: bool) -> None:
        self.changed = asyncio.Event()
        self.ready = False
        self.fault: RatchetError | None = None
        self.results: deque[Result] = deque()
        self.unconfirmed: dict[str, Task] = {}
        self._url = url
        self._loop = loop
        self._exchange = namespace + EXCHANGE
        self._queue = namespace + TASKS
        self._reply_queue = f"{namespace}reply.{uuid.uuid4().hex}" if replies else None
        self._connection: AsyncioConnection | None = None
        self._channel: Channel | None = None
        self._tags: dict[int, str] = {}
        self._next_tag = 1
        self._pause_s = FIRST_PAUSE_S
        self._lost_at: float | None = None
        self._closing = False

    def connect(self) -> None:
        self._connection = AsyncioConnection(
            parameters(self._url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._on_channel),
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
            custom_ioloop=self._loop,
        )

    def publish(self, task: Task) -> None:
        """It stays in `unconfirmed` until the broker has it, and is published again after a lost connection."""
        self.unconfirmed[task.task_id] = task
        if self.ready:
            self._send(task)

    def close(self) -> None:
        """Delete the reply queue and disconnect; `changed` is set when that is done."""
        self._closing = True
        if self._connection is None or not self._connection.is_open:
            self._signal()
            return
        if self._channel and self._channel.is_open and self._reply_queue:
            self._channel.queue_delete(self._reply_queue)
        self._connection.close()

    def _on_channel(self, channel: Channel) -> None:
        self._channel = channel
        self._tags.clear()
        self._next_tag = 1
        channel.add_on_close_callback(self._on_channel_closed)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._declare(channel))

    def _declare(self, channel: Channel) -> None:
        if self._reply_queue is None:
            self._on_ready()
            return
        channel.queue_declare(
            self._reply_queue,
            durable=True,
            arguments={"x-expires": REPLY_EXPIRES_MS},
            callback=lambda _: self._consume(channel, str(self._reply_queue)),
        )

    def _consume(self, channel: Channel, queue: str) -> None:
        channel.basic_consume(queue, self._on_result, callback=lambda _: self._on_ready())

    def _on_ready(self) -> None:
        self.ready = True
        self._lost_at = None
        self._pause_s = FIRST_PAUSE_S
        for task in tuple(self.unconfirmed.values()):
            self._send(task)
        self._signal()

    def _send(self, task: Task) -> None:
        """Through the fleet's exchange, the only one a user of the fleet needs to be allowed to write to."""
        assert self._channel is not None
        self._tags[self._next_tag] = task.task_id
        self._next_tag += 1
        properties = BasicProperties(
            content_type="application/json",
            delivery_mode=pika.DeliveryMode.Persistent.value,
            type=Task.TYPE,
            message_id=task.task_id,
            correlation_id=task.task_id,
            reply_to=self._reply_queue,
        )
        self._channel.basic_publish(self._exchange, self._queue, task.encode(), properties)

    def _on_confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        tags = [known for known in self._tags if known <= tag] if frame.method.multiple else [tag]
        names = [self._tags.pop(known) for known in tags if known in self._tags]
        if isinstance(frame.method, Basic.Ack):
            for name in names:
                self.unconfirmed.pop(name, None)
            self._signal()
        else:
            self._loop.call_later(self._pause_s, self._send_again, names)

    def _send_again(self, names: list[str]) -> None:
        """What the broker refused (a full queue)."""
        for name in names:
            if self.ready and (task := self.unconfirmed.get(name)):
                self._send(task)

    def _on_result(self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        try:
            result = Result.decode(body)
        except DecodeError as error:
            self._end(CommandError(f"the fleet answered with something that is no result: {error}"))
            return
        if not result.task_id and properties.correlation_id:
            result = result.model_copy(update={"task_id": properties.correlation_id})
        self.results.append(result)
        channel.basic_ack(method.delivery_tag)
        self._signal()

    def _on_channel_closed(self, _: Channel, reason: BaseException) -> None:
        code = reason.reply_code if isinstance(reason, ChannelClosedByBroker) else None
        if code == NOT_FOUND:
            self._end(
                CommandError(
                    f"the broker has no exchange {self._exchange!r}: the fleet was never up here. Type: ratchet up"
                )
            )
        elif code == ACCESS_REFUSED:
            self._end(CommandError(f"the broker does not let this user ask tasks: {reason}"))
        if self._connection and self._connection.is_open and not self._closing:
            self._connection.close()

    def _on_lost(self, _: Any, reason: BaseException) -> None:
        self.ready = False
        if self._closing:
            self._signal()
            return
        now = self._loop.time()
        first_time = self._channel is None
        self._lost_at = self._lost_at or now
        if first_time or now - self._lost_at > PATIENCE_S:
            self._end(unreachable(self._url, reason))
            return
        self._loop.call_later(self._pause_s, self.connect)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _end(self, fault: RatchetError) -> None:
        self.fault = fault
        self._signal()

    def _signal(self) -> None:
        self.changed.set()
