"""Tells an agent's replicas which adapters to have loaded, again and again, and hears what they have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ratchet.bus.protocol import Bus
from ratchet.bus.topology import events_topic
from schemas.messages.adapter_event import AdapterEvent, AdapterMove, ServedAdapter
from schemas.messages.base import Metadata
from schemas.messages.work import BASE_VERSION
from services.orchestrator.promotion.arms import Arms


class Announcer:
    """One agent's. What must be loaded: all in traffic, all that still answers, and what is being validated."""

    def __init__(self, arms: Arms, bus: Bus, clock: Callable[[], datetime]) -> None:
        self._arms = arms
        self._bus = bus
        self._clock = clock
        self._last = datetime.min.replace(tzinfo=UTC)
        self.revision = 0
        self.validating: str | None = None

    def wanted_adapters(self) -> tuple[ServedAdapter, ...]:
        adapters = self._arms.adapters
        versions = set(adapters.in_traffic) | self._arms.answering | {self.validating or BASE_VERSION}
        entries = (adapters.versions[version] for version in sorted(versions - {BASE_VERSION}))
        return tuple(
            ServedAdapter(version=entry.version, sha256=entry.sha256) for entry in entries if entry.sha256 is not None
        )

    async def announce(
        self, event: AdapterMove = "standing", version: str | None = None, reason: str | None = None
    ) -> datetime:
        """The announcement's moment, after that of every one before, though the clock be set back. Raises BusError."""
        adapters = self._arms.adapters
        self._last = at = max(self._clock(), self._last + timedelta(microseconds=1))
        message = AdapterEvent(
            agent_id=self._arms.agent_id,
            event=event,
            metadata=Metadata(timestamp=at, source="orchestrator"),
            version=version,
            reason=reason,
            revision=self.revision,
            primary=adapters.primary,
            candidate=adapters.candidate,
            adapters=self.wanted_adapters(),
        )
        topic = events_topic(self._arms.agent_id)
        message_id = f"{self._arms.agent_id}/{self.revision}/{event}"
        await self._bus.broadcast(topic, message.encode(), type=AdapterEvent.TYPE, message_id=message_id)
        return at
