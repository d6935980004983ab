"""Where a message goes whose handler failed: up the retry ladder, or whole to the dead letters. Confirmed either way.

Which of the two is `ratchet/bus/retry_policy.py`'s word; this file only carries it out over AMQP.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from ratchet.bus.amqp.declaration import Declaration
from ratchet.bus.amqp.frames import PERSISTENT, Properties
from ratchet.bus.amqp.publisher import Publisher
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import Climb, GiveUp, after_failure, dead_letter_headers, retry_headers
from ratchet.bus.topology import DEAD_LETTERS
from ratchet.service.metrics import queue_metrics
from ratchet.service.telemetry import Log

_log = Log(__name__)


class Failures:
    """`name` is the service's, as the dead letters will show it."""

    def __init__(self, publisher: Publisher, declaration: Declaration, name: str) -> None:
        self._publisher = publisher
        self._declaration = declaration
        self._name = name

    async def settle(self, delivery: Delivery, properties: Properties, error: Exception) -> None:
        """Returns when the broker has the message at its next place. Raises BusError."""
        verdict = after_failure(error, delivery.attempt, self._declaration.topology.rungs)
        if isinstance(verdict, Climb):
            await self._climb(delivery, properties, verdict, error)
        else:
            await self._bury(delivery, properties, verdict)

    async def _climb(self, delivery: Delivery, properties: Properties, verdict: Climb, error: Exception) -> None:
        wire = self._declaration.wire
        headers = retry_headers(delivery.headers, verdict.attempt)
        forwarded = _forwarded(properties, headers)
        await self._publisher.send(wire(verdict.rung.name), wire(delivery.queue), forwarded, delivery.body)
        queue_metrics(delivery.queue).retried.inc()
        _log.info(
            "retried",
            f"again in {verdict.rung.delay_ms / 1000:g} s: {error!r}",
            queue=delivery.queue,
            message_id=delivery.message_id,
            attempt=verdict.attempt,
        )

    async def _bury(self, delivery: Delivery, properties: Properties, verdict: GiveUp) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        headers = dead_letter_headers(delivery.headers, verdict, queue=delivery.queue, at=at, by=self._name)
        target = self._declaration.wire(DEAD_LETTERS)
        forwarded = _forwarded(properties, headers)
        await self._publisher.send(self._declaration.exchange, target, forwarded, delivery.body)
        queue_metrics(delivery.queue).dead_lettered.inc()
        _log.warning(
            "dead-lettered",
            f"to {DEAD_LETTERS}: {verdict.reason}",
            queue=delivery.queue,
            message_id=delivery.message_id,
            attempts=verdict.attempts,
        )


def _forwarded(properties: Properties, headers: dict[str, object]) -> Properties:
    """The same properties, but persistent, and without those that would lose it or have it refused on the way."""
    return replace(properties, headers=headers, delivery_mode=PERSISTENT, expiration=None, user_id=None)
