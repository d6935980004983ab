"""A consumer's hold on one channel: subscribe, widen the prefetch, acknowledge in batches, cancel.

Delivery tags mean nothing on the next channel, so nothing of this outlives its channel.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

from pika.exceptions import AMQPError

from ratchet.bus.amqp.channel import AmqpChannel, ChannelLost, open_channel
from ratchet.bus.amqp.connection import AmqpConnection, Receiver
from ratchet.bus.amqp.declaration import Declaration
from ratchet.bus.amqp.frames import Properties, ack_frame
from ratchet.bus.amqp.link import FIRST_PAUSE_S, LONGEST_PAUSE_S, Link, explain
from ratchet.bus.protocol import BroadcastHandler, Delivery
from ratchet.bus.retry_policy import pause_s
from ratchet.bus.topology import BROADCAST_EXCHANGE, LISTENER
from ratchet.concurrency.keyed import cancelled_by_us
from ratchet.service.errors import BusError
from ratchet.service.telemetry import Log

MOST_WAITING = 10_000
"""Messages kept for a listener that is slow; the oldest go first."""

_log = Log(__name__)


class Listener:
    """Runs from `start` until `stop`."""

    def __init__(self, topic: str, handler: BroadcastHandler, *, link: Link, declaration: Declaration) -> None:
        self._topic = topic
        self._handler = handler
        self._link = link
        self._declaration = declaration
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trouble: str | None = "not subscribed yet"

    async def start(self) -> None:
        """Returns when it is bound to the topic."""
        self._task = asyncio.create_task(self._keep_listening())
        await self._first

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def trouble(self) -> str | None:
        return f"not listening to {self._topic!r}: {self._trouble}" if self._trouble else None

    async def _keep_listening(self) -> None:
        failures = 0
        while True:
            connection = await self._link.wait_open()
            failures += 1
            try:
                await self._listen(connection)
                failures = 0
            except (BusError, AMQPError, TimeoutError) as error:
                self._trouble = explain(error)
                _log.warning("listener-lost", f"{self._topic}: {self._trouble}; listening again", topic=self._topic)
            except asyncio.CancelledError as error:
                if cancelled_by_us():
                    raise
                self._trouble = explain(error)
            await asyncio.sleep(pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random()))

    async def _listen(self, connection: AmqpConnection) -> None:
        """Returns when the channel is gone."""
        channel = await open_channel(connection)
        bounds = {"x-max-length": MOST_WAITING}
        name = self._declaration.wire(f"{LISTENER}{uuid.uuid4().hex}")
        await channel.call(channel.raw.queue_declare, queue=name, exclusive=True, auto_delete=True, arguments=bounds)
        exchange, topic = self._declaration.wire(BROADCAST_EXCHANGE), self._declaration.wire(self._topic)
        await channel.call(channel.raw.queue_bind, queue=name, exchange=exchange, routing_key=topic)
        connection.receivers[channel.number] = self._receiver()
        await channel.call(
            channel.raw.basic_consume, queue=name, on_message_callback=lambda *_message: None, auto_ack=True
        )
        self._trouble = None
        _log.info("listening", f"listening to {self._topic}", topic=self._topic)
        if not self._first.done():
            self._first.set_result(None)
        lost = await asyncio.shield(channel.lost)
        self._trouble = explain(lost)

    def _receiver(self) -> Receiver:
        def receive(_tag: int, _redelivered: bool, properties: Properties, body: bytes) -> None:
            headers = properties.headers or {}
            delivery = Delivery(self._topic, body, properties.type, properties.message_id, headers=headers)
            try:
                self._handler(delivery)
            except Exception as error:
                _log.error("hearing-failed", f"{self._topic}: {error}", exc_info=error)

        return receive


class AckWindow:
    """Tracks which deliveries of a channel are settled but not acknowledged, and the fewest acks that cover them. Pure.

    A channel numbers its deliveries 1, 2, 3 …; an ack of several says "all up to this tag", so it may cover the
    unbroken run of settled deliveries from the oldest, and no further. One never settled stays unacknowledged: closing
    the channel requeues it.
    """

    def __init__(self) -> None:
        self._settled: dict[int, bool] = {}
        """Delivered and not acknowledged, oldest first: is it settled?"""
        self.owed = 0
        """Settled deliveries whose ack is not sent."""

    def deliver(self, tag: int) -> None:
        """Add a delivery. Tags come in order."""
        self._settled[tag] = False

    def settle(self, tag: int) -> None:
        """The delivery is done with. Each tag once."""
        self._settled[tag] = True
        self.owed += 1

    def take(self) -> list[tuple[int, bool]]:
        """The acks owed, as (tag, multiple) in the order to send them. They count as sent."""
        owed = [tag for tag, settled in self._settled.items() if settled]
        run = 0
        for oldest, tag in zip(self._settled, owed, strict=False):
            if oldest != tag:
                break
            run += 1
        for tag in owed:
            del self._settled[tag]
        self.owed = 0
        return [(tag, True) for tag in owed[:run][-1:]] + [(tag, False) for tag in owed[run:]]


CANCEL_TIMEOUT_S = 3.0


class ChannelConsumer:
    """A consumer of one queue, by its name on the wire."""

    def __init__(self, channel: AmqpChannel, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._tag = "1"
        self._subscribed = 1
        self._paused = False
        self._ended: BaseException | None = None
        self._window = AckWindow()
        self._loop = asyncio.get_running_loop()
        channel.raw.add_on_cancel_callback(self._note_cancelled)

    @property
    def alive(self) -> bool:
        return bool(self._channel.raw.is_open)

    async def consume(self, prefetch: int, receive: Receiver) -> None:
        """Deliveries may come, to `receive`, before this returns. Raises ChannelLost, TimeoutError."""
        channel, raw = self._channel, self._channel.raw
        channel.connection.receivers[channel.number] = receive
        await channel.call(raw.basic_qos, prefetch_count=prefetch)
        await channel.call(
            raw.basic_consume, queue=self._queue, on_message_callback=_taken_by_short_path, consumer_tag=self._tag
        )

    def pause(self) -> None:
        """No more deliveries, but for those on their way."""
        self._paused = True
        self._channel.raw.basic_cancel(self._tag, callback=lambda _frame: None)

    def resume(self, prefetch: int) -> None:
        """Deliveries come again, so many at once beside those that are not settled yet."""
        raw = self._channel.raw
        self._subscribed += 1
        self._paused = False
        raw.basic_qos(prefetch_count=prefetch)
        self._tag = raw.basic_consume(self._queue, _taken_by_short_path, consumer_tag=str(self._subscribed))

    def widen(self, prefetch: int) -> None:
        """The broker sets the prefetch of a consumer when it subscribes, so: cancel, and subscribe anew."""
        self.pause()
        self.resume(prefetch)

    async def cancel(self) -> None:
        """No more deliveries. Raises ChannelLost, TimeoutError."""
        if self._paused:
            return
        async with asyncio.timeout(CANCEL_TIMEOUT_S):
            await self._channel.call(self._channel.raw.basic_cancel, consumer_tag=self._tag)

    def deliver(self, tag: int) -> None:
        """Every delivery, in order: what is not settled later stays the broker's."""
        self._window.deliver(tag)

    def settle(self, tag: int) -> None:
        """Acknowledge, together with whatever else is settled in this turn of the loop."""
        if not self._window.owed:
            self._loop.call_soon(self._flush)
        self._window.settle(tag)

    def close(self) -> None:
        """Acknowledge what is settled; what is not goes back to the queue."""
        self._flush()
        self._channel.close()

    async def wait_end(self) -> BaseException:
        """Return why there will be no more deliveries."""
        lost = await asyncio.shield(self._channel.lost)
        return self._ended or ChannelLost(lost)

    def _flush(self) -> None:
        if self.alive:
            for tag, multiple in self._window.take():
                self._channel.connection.send(ack_frame(self._channel.number, tag, multiple))

    def _note_cancelled(self, _frame: Any) -> None:
        self._ended = BusError("the broker cancelled the consumer: its queue was deleted, or has no leader")
        self.close()


def _taken_by_short_path(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
    raise AssertionError(f"{method} should have been read by ratchet/bus/amqp/connection.py")
