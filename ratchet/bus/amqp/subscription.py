"""A consumer's hold on one channel: subscribe, widen the prefetch, acknowledge in batches, cancel.

Delivery tags mean nothing on the next channel, so nothing of this outlives its channel.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ratchet.bus.amqp.channel import AmqpChannel, ChannelLost
from ratchet.bus.amqp.connection import Receiver
from ratchet.bus.amqp.frames import ack_frame
from ratchet.service.errors import BusError


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
            raw.basic_consume,
            queue=self._queue,
            on_message_callback=_taken_by_short_path,
            consumer_tag=self._tag,
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
