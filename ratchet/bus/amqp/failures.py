"""Sends on a message whose handler failed: up the retry ladder, or whole to the dead letters. Confirmed either way.

`ratchet/bus/retry_policy.py` decides which of the two; this file carries it out over AMQP. No content of a message can
stop it: what no frame holds goes inside another message. Where the queue of dead letters is full, letters wait on disk
or else on the ladder, while innocent messages pass.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ratchet.bus.amqp.declaration import Declaration
from ratchet.bus.amqp.forwarding import (
    WireMessage,
    inside_another,
    pack_message,
    sent_on,
    stand_in,
    unpack_message,
    without_headers,
)
from ratchet.bus.amqp.frames import Properties
from ratchet.bus.amqp.publisher import Publisher, Refused
from ratchet.bus.claim_store import ClaimStore
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import (
    AT,
    ATTEMPTS,
    BY,
    QUEUE,
    REASON,
    Climb,
    GiveUp,
    after_failure,
    dead_letter_headers,
    retry_headers,
)
from ratchet.bus.topology import DEAD_LETTERS
from ratchet.service.errors import BusError, JournalError, Reject
from ratchet.service.metrics import DEAD_LETTERS_WAITING, queue_metrics
from ratchet.service.telemetry import Log

MOST_NACKS = 3
"""Refusals by the queue of dead letters before a letter is taken elsewhere: the queue is full, or has no leader."""
PUBLISH_WAITING_S = 5.0
"""The pause between two tries to publish the dead letters that wait on disk."""
FULL_S = 30.0
"""Dead letters go straight to disk for so long after a refusal."""
PARKED_S = 600.0
"""Seconds after a letter went up the ladder for want of room in which that is a trouble: twice the last rung's
delay."""

_log = Log(__name__)


class Failures:
    """`name` is the service's, as the dead letters will show it. Without a store, nothing waits on disk.

    `user`: the broker's user that publishes.
    """

    def __init__(
        self,
        publisher: Publisher,
        declaration: Declaration,
        name: str,
        store: ClaimStore | None,
        user: str | None = None,
    ) -> None:
        self._publisher = publisher
        self._declaration = declaration
        self._name = name
        self._store = store
        self._user = user
        self._full_until = 0.0
        self._parked: float | None = None

    async def settle(self, delivery: Delivery, properties: Properties, error: Exception) -> None:
        """Returns when the broker or the disk has the message at its next place. Raises BusError."""
        verdict = after_failure(error, delivery.attempt, self._declaration.topology.rungs)
        message = WireMessage(properties, delivery.body)
        if isinstance(verdict, Climb):
            await self._climb(delivery, message, verdict)
            queue_metrics(delivery.queue).retried.inc()
            why = f"again in {verdict.rung.delay_ms / 1000:g} s: {error!r}"
            _log.info("retried", why, queue=delivery.queue, message_id=delivery.message_id, attempt=verdict.attempt)
        else:
            await self._bury(delivery, message, verdict)

    def trouble(self) -> str | None:
        if self._parked is None or time.monotonic() - self._parked > PARKED_S:
            return None
        return (
            f"{DEAD_LETTERS} is full, and there is no room on disk: dead letters go round on the retry ladder. Look at "
            "them and send them back or drop them: `ratchet dead-letters list`"
        )

    async def _climb(self, delivery: Delivery, message: WireMessage, verdict: Climb) -> None:
        wire = self._declaration.wire
        added = retry_headers(verdict.attempt)
        await self._send(wire(verdict.rung.name), wire(delivery.queue), message, added, claimed=False)

    async def _bury(self, delivery: Delivery, message: WireMessage, verdict: GiveUp) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        added = dead_letter_headers(verdict, queue=delivery.queue, at=at, by=self._name)
        place = await self._place_for(delivery, message, added)
        queue_metrics(delivery.queue).dead_lettered.inc()
        _log.warning(
            "dead-lettered",
            f"to {place}: {verdict.reason}",
            queue=delivery.queue,
            message_id=delivery.message_id,
            attempts=verdict.attempts,
        )

    async def _place_for(self, delivery: Delivery, message: WireMessage, added: Mapping[str, Any]) -> str:
        """Puts it where there is room, and says where that is."""
        if time.monotonic() > self._full_until:
            try:
                await self._publish_letter(message, added)
            except Refused:
                self._full_until = time.monotonic() + FULL_S
            else:
                return DEAD_LETTERS
        if (claim := await self._on_disk(sent_on(message, added), waiting=True)) is not None:
            DEAD_LETTERS_WAITING.inc()
            return f"disk, as {claim}, until {DEAD_LETTERS} has room"
        self._parked = time.monotonic()
        again = Climb(self._declaration.topology.rungs[-1], delivery.attempt)
        await self._climb(delivery, message, again)
        return f"{again.rung.name}: {DEAD_LETTERS} is full, and there is no room on disk"

    async def _publish_letter(self, message: WireMessage, added: Mapping[str, Any]) -> None:
        target = self._declaration.wire(DEAD_LETTERS)
        await self._send(self._declaration.exchange, target, message, added, claimed=True)

    async def _send(
        self, exchange: str, routing_key: str, message: WireMessage, added: Mapping[str, Any], *, claimed: bool
    ) -> None:
        """Whole, with these headers; inside another message where no frame holds them; on disk where no body does.

        Without its headers, noted, where that can't be either. A `claimed` one is a dead letter. Raises BusError.
        """
        most_nacks = MOST_NACKS if claimed else None
        whole = sent_on(message, added, None if claimed else self._user)
        try:
            await self._publisher.send(exchange, routing_key, *whole, most_nacks=most_nacks)
            return
        except Reject as error:
            _log.info("too-large-to-forward", f"{routing_key}: {error}; it travels inside another message")
        other = inside_another(whole, added)
        if other is None and claimed and (claim := await self._on_disk(whole)) is not None:
            other = stand_in(whole, claim, added)
        if other is None:
            other = without_headers(message, added)
        await self._publisher.send(exchange, routing_key, *other, most_nacks=most_nacks)

    async def _on_disk(self, letter: WireMessage, *, waiting: bool = False) -> str | None:
        """Keep the letter in a file. Return its sha256, or None where it can't be kept."""
        if self._store is None:
            return None
        try:
            return await asyncio.to_thread(self._store.put, pack_message(letter), waiting=waiting)
        except JournalError as error:
            _log.error("dead-letter-not-stored", str(error))
            return None

    async def keep_publishing_what_waits(self) -> None:
        """Runs until it is cancelled."""
        while self._store is not None:
            try:
                await self._publish_what_waits(self._store)
            except (BusError, JournalError, ValueError) as error:
                _log.info("dead-letters-wait", f"dead letters wait on disk: {error}")
            await asyncio.sleep(PUBLISH_WAITING_S)

    async def _publish_what_waits(self, store: ClaimStore) -> None:
        names = await asyncio.to_thread(store.waiting)
        DEAD_LETTERS_WAITING.set(len(names))
        if not names:
            return
        with store.turn() as ours:
            for name in names if ours else ():
                data = await asyncio.to_thread(store.read_waiting, name)
                if data is not None:
                    letter = unpack_message(data)
                    headers = letter.properties.headers or {}
                    added = {key: headers[key] for key in (REASON, QUEUE, ATTEMPTS, AT, BY) if key in headers}
                    await self._publish_letter(letter, added)
                    await asyncio.to_thread(store.remove, name)
                    DEAD_LETTERS_WAITING.dec()
        self._full_until = 0.0
