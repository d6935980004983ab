"""The bus as services see it: deliveries in, confirmed publishes out. RabbitMQ and the in-memory double implement it.

The one delivery rule: a handler publishes downstream and awaits the confirm, and only then returns; its return is the
ack. So every hop is at-least-once, and a handler must give the same effect when it sees a delivery again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from ratchet.bus.amqp.table import is_plain
from ratchet.bus.in_hand import STALLED_AFTER_S, never
from ratchet.service.errors import Reject
from schemas.messages.base import DecodeError, Message

MAX_BYTES = 255
"""An AMQP short string holds no more; a task id of 200 characters may be 800 bytes of UTF-8."""


def derived_id(task_id: str, event: str) -> str:
    """`<task_id>/<event>`, or where that is over 255 bytes the sha256 of it and as much of its beginning as fits.

    A task id with characters that stand for bytes on the wire is named by its sha256 alone.
    """
    whole = f"{task_id}/{event}"
    encoded = whole.encode()
    if len(encoded) <= MAX_BYTES and is_plain(whole):
        return whole
    digest = hashlib.sha256(encoded).hexdigest()
    if not is_plain(whole):
        return f"#{digest}"
    return f"{encoded[: MAX_BYTES - len(digest) - 1].decode(errors='ignore')}#{digest}"


NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class Delivery(NamedTuple):
    """One message as it came off a queue."""

    queue: str
    body: bytes
    type: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    headers: Mapping[str, Any] = NO_HEADERS
    attempt: int = 0
    """Times that a handler asked for `Retry` before."""
    redelivered: bool = False
    """True if any handler may have seen it before, wholly or in part (redelivery by the broker, or a retry)."""
    user_id: str | None = None
    """The broker's user who published it, which the broker has checked; None where it does not say."""

    @property
    def attempts(self) -> int | None:
        """Return which attempt this is, counted from 1; None for the first, which goes without saying."""
        return self.attempt + 1 if self.attempt else None


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queue as the broker sees it now: messages ready for delivery, and consumers."""

    messages: int
    consumers: int


M = TypeVar("M", bound=Message)


def decode_delivery(message: type[M], delivery: Delivery) -> M:
    """The message in a delivery. Raises Reject for another type or version, and for a body that is not one."""
    if delivery.type and delivery.type != message.TYPE:
        raise Reject(
            f"its AMQP type is {delivery.type!r}, but {delivery.queue} takes {message.TYPE}: "
            f"publish it with that type, or none"
        )
    try:
        return message.decode(delivery.body)
    except DecodeError as error:
        raise Reject(error.reason) from None


Handler = Callable[[Delivery], Awaitable[None]]
BroadcastHandler = Callable[[Delivery], None]
"""A callback for a broadcast; it must be quick."""


class Bus(Protocol):
    """Connects by itself, again after every loss, until `stop`."""

    async def start(self) -> None:
        """Connect and declare the topology. Returns when connected; waits for a broker that is not there yet."""

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        type: str,
        message_id: str,
        reply_to: str | None = None,
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish to a queue of the topology (routing key = queue name); returns when the broker confirmed it.

        Persistent. A nack or a lost connection is published again until the time-out. Safe to call concurrently, and
        meant to be: confirms overlap. Raises PublishTimeout, BusError.
        """

    async def reply(
        self, reply_to: str, body: bytes, *, type: str, message_id: str, correlation_id: str | None
    ) -> bool:
        """Publish to a user's own queue, through the default exchange. False if that queue is gone.

        Raises PublishTimeout.
        """

    async def consume(
        self,
        queue: str,
        handler: Handler,
        *,
        prefetch: int,
        stalled_after_s: float | None = STALLED_AFTER_S,
        advanced_at: Callable[[], float] = never,
    ) -> None:
        """Hand every delivery of the queue to the handler, up to `prefetch` at once, until `stop`.

        Deliveries in hand of which none is settled for `stalled_after_s`, and which did not advance since either, are
        a trouble; None: never.
        """

    async def broadcast(self, topic: str, body: bytes, *, type: str, message_id: str) -> None:
        """Publish to whoever listens to the topic now; returns when confirmed, also if nobody does. Raises BusError."""

    async def listen(self, topic: str, handler: BroadcastHandler) -> None:
        """Hand every message of a topic to the handler, each listener its own copy, until `stop`.

        What comes while it is disconnected is missed.

        The topic `rewards` has a copy of all that is published to the queue `rewards`.
        """

    async def state(self, queue: str) -> QueueState:
        """Depth and consumers of a queue. Raises BusError if the broker can't say."""

    async def stop(self, grace_s: float) -> bool:
        """Drain: no new deliveries, let running handlers finish within `grace_s`, hand the rest back, disconnect.

        True if every handler finished.
        """

    def trouble(self) -> str | None:
        """Return why the bus can't do its work now, as a sentence; None if it can."""

    def delivery_trouble(self, queue: str) -> str | None:
        """Return why no delivery of the queue can come now, as a sentence; a part of `trouble`.

        A connection is down or blocked, or the queue's consumer is not subscribed. A queue that is full is none.
        """

    def stall_reason(self) -> str | None:
        """Return that work in hand does not get on for no known reason, as a sentence; a part of `trouble`."""
