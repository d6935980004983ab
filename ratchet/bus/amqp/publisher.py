"""Publishes and awaits the broker's confirms, many at once, over whatever connection there is at the moment.

A nack or a lost connection is published again, until the message's time is up. While the broker is blocked by an alarm
nothing is written, so nothing arrives after its sender gave up. One sweeper minds all time-outs.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from pika.channel import Channel
from pika.spec import BasicProperties

from ratchet.bus.amqp.channel import AmqpChannel, open_channel, resolving
from ratchet.bus.amqp.connection import AmqpConnection
from ratchet.bus.amqp.frames import Properties, publish_frames
from ratchet.bus.retry_policy import pause_s
from ratchet.service import failpoint
from ratchet.service.errors import BusError, PublishTimeout, Reject
from ratchet.service.metrics import PUBLISH_RETRIES

SWEEP_S = 0.1
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
SLOW_S = 10.0
"""A message that waits this long for its confirm is a trouble worth showing."""


class Refused(BusError):
    """The queue refused the message as often as its sender lets it."""


class Unreachable(BusError):
    """The message was returned: there is no queue of that name."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message on its way until `confirmed` resolves."""

    exchange: str
    routing_key: str
    properties: Properties
    body: bytes
    mandatory: bool
    deadline: float
    confirmed: asyncio.Future[None]
    most_nacks: int | None = None
    written_at: float | None = None
    nacks: int = 0
    resume_at: float = 0.0
    returned: bool = False


class Publisher:
    """`attach` gives it a connection; it loses that by itself when the connection goes."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._channel: AmqpChannel | None = None
        self._connection: AmqpConnection | None = None
        self._frame_max = 0
        self._blocked = False
        self._next_tag = 1
        self._unconfirmed: dict[int, Outgoing] = {}
        self._waiting: deque[Outgoing] = deque()
        self._paused: list[Outgoing] = []
        self._by_age: deque[Outgoing] = deque()
        self._last_confirm = 0.0
        self._sweeper: asyncio.TimerHandle | None = None

    def send(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties,
        body: bytes,
        *,
        mandatory: bool = False,
        most_nacks: int | None = None,
    ) -> asyncio.Future[None]:
        """Return a future that is done when the broker has the message.

        Raises Reject for what AMQP can't carry, PublishTimeout, Unreachable only where `mandatory`, and Refused only
        after `most_nacks`.
        """
        confirmed = self._loop.create_future()
        deadline = self._loop.time() + self._timeout_s
        outgoing = Outgoing(exchange, routing_key, properties, body, mandatory, deadline, confirmed, most_nacks)
        self._by_age.append(outgoing)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        if self._ready:
            self._write(outgoing)
        else:
            self._waiting.append(outgoing)
        return confirmed

    async def attach(self, connection: AmqpConnection) -> None:
        """Publish on this connection from now on, first of all what the last one left unconfirmed."""
        channel = await open_channel(connection)
        raw = channel.raw
        raw.add_on_return_callback(self._on_return)
        answered = self._loop.create_future()
        raw.confirm_delivery(_taken_by_short_path, callback=resolving(answered))
        await channel.wait_for_answer(answered)
        connection.confirms[channel.number] = self._on_confirm
        self._channel, self._connection, self._blocked = channel, connection, False
        self._frame_max = connection.frame_max
        self._next_tag = 1
        channel.lost.add_done_callback(lambda _lost: self._detach(channel))
        self._write_waiting()

    def set_blocked(self, blocked: bool) -> None:
        """Hold everything back when the broker raises its alarm, or let it go."""
        self._blocked = blocked
        self._write_waiting()

    def close(self) -> None:
        """Stop publishing. What is still unconfirmed fails."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for outgoing in self._by_age:
            if not outgoing.confirmed.done():
                outgoing.confirmed.set_exception(BusError("stopped before the broker confirmed the message"))

    def trouble(self) -> str | None:
        while self._by_age and self._by_age[0].confirmed.done():
            self._by_age.popleft()
        if not self._by_age:
            return None
        oldest = self._by_age[0]
        waited = self._timeout_s - (oldest.deadline - self._loop.time())
        if waited < min(SLOW_S, self._timeout_s / 2):
            return None
        return f"a message to {oldest.routing_key!r} waits {waited:.0f} s for its confirm ({_why(oldest)})"

    @property
    def _ready(self) -> bool:
        return self._channel is not None and self._channel.raw.is_open and not self._blocked

    def _write(self, outgoing: Outgoing) -> None:
        assert self._channel is not None and self._connection is not None
        try:
            frames = publish_frames(
                self._channel.number,
                outgoing.exchange,
                outgoing.routing_key,
                outgoing.properties,
                outgoing.body,
                mandatory=outgoing.mandatory,
                frame_max=self._frame_max,
            )
        except ValueError as error:
            outgoing.confirmed.set_exception(Reject(f"a message to {outgoing.routing_key!r} can't be sent: {error}"))
            return
        self._connection.send(frames)
        self._unconfirmed[self._next_tag] = outgoing
        self._next_tag += 1
        outgoing.written_at = self._loop.time()
        if failpoint.is_armed("published"):
            self._connection.flush()
            failpoint.reach("published")

    def _write_waiting(self) -> None:
        while self._waiting and self._ready:
            outgoing = self._waiting.popleft()
            if not outgoing.confirmed.done():
                self._write(outgoing)

    def _detach(self, channel: AmqpChannel) -> None:
        if channel is not self._channel:
            return
        connection, self._channel, self._connection = self._connection, None, None
        left = [outgoing for outgoing in self._unconfirmed.values() if not outgoing.confirmed.done()]
        self._unconfirmed.clear()
        self._waiting.extendleft(reversed(left))
        PUBLISH_RETRIES.inc(len(left))
        if connection is not None and connection.is_open:
            connection.close()

    def _on_confirm(self, upto: int, multiple: bool, nack: bool) -> None:
        self._last_confirm = self._loop.time()
        for tag in self._confirmed_tags(upto, multiple):
            outgoing = self._unconfirmed.pop(tag, None)
            if outgoing is None or outgoing.confirmed.done():
                continue
            if nack:
                self._pause(outgoing)
            elif outgoing.returned:
                outgoing.confirmed.set_exception(Unreachable(f"there is no queue {outgoing.routing_key!r}"))
            else:
                outgoing.confirmed.set_result(None)

    def _confirmed_tags(self, tag: int, multiple: bool) -> list[int]:
        if not multiple:
            return [tag]
        tags = []
        for unconfirmed in self._unconfirmed:
            if unconfirmed > tag:
                break
            tags.append(unconfirmed)
        return tags

    def _pause(self, outgoing: Outgoing) -> None:
        outgoing.nacks += 1
        if outgoing.most_nacks is not None and outgoing.nacks >= outgoing.most_nacks:
            outgoing.confirmed.set_exception(Refused(f"the queue {outgoing.routing_key!r} refuses messages"))
            return
        pause = pause_s(outgoing.nacks, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random())
        outgoing.resume_at = self._loop.time() + pause
        self._paused.append(outgoing)
        PUBLISH_RETRIES.inc()

    def _on_return(self, _channel: Channel, method: Any, properties: BasicProperties, _body: bytes) -> None:
        """The broker returns a message before it confirms it; what was sent with it tells which one it is."""
        for outgoing in self._unconfirmed.values():
            same = outgoing.mandatory and outgoing.routing_key == method.routing_key and not outgoing.returned
            if same and outgoing.properties.message_id == properties.message_id:
                outgoing.returned = True
                return

    def _sweep(self) -> None:
        now = self._loop.time()
        self._by_age = deque(outgoing for outgoing in self._by_age if not outgoing.confirmed.done())
        while self._by_age and self._by_age[0].deadline <= now:
            self._time_out(self._by_age.popleft())
        due = [outgoing for outgoing in self._paused if outgoing.resume_at <= now]
        if due:
            self._paused = [outgoing for outgoing in self._paused if outgoing.resume_at > now]
            self._waiting.extend(due)
            self._write_waiting()
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep) if self._by_age else None

    def _time_out(self, outgoing: Outgoing) -> None:
        why = _why(outgoing)
        outgoing.confirmed.set_exception(
            PublishTimeout(
                f"no confirm for the message to {outgoing.routing_key!r} within {self._timeout_s:g} s ({why}): "
                "it may or may not have arrived; send it again when the broker is well"
            )
        )
        stuck = outgoing.written_at is not None and outgoing.written_at > self._last_confirm and not outgoing.nacks
        if stuck and self._connection is not None and not self._blocked:
            self._connection.abort(TimeoutError(f"no confirm at all for {self._timeout_s:g} s"))


def _why(outgoing: Outgoing) -> str:
    if outgoing.nacks:
        return f"refused {outgoing.nacks} times: the queue is full or has no leader"
    return "sent" if outgoing.written_at is not None else "never sent: not connected, or blocked by an alarm"


def _taken_by_short_path(frame: Any) -> None:
    raise AssertionError(f"{frame} should have been read by ratchet/bus/amqp/connection.py")
