"""Keeps the adapters loaded that the orchestrator announces, before the first task asks for them, and reports.

Each announcement says all that should be loaded, so a missed one is made up for by the next. What is no longer wanted
is unloaded once no task uses it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from ratchet.bus.protocol import Bus, Delivery
from ratchet.bus.topology import ADAPTER_REPORTS, events_topic
from ratchet.service.errors import AdapterError, BusError, EngineError, one_line
from ratchet.service.process_name import process_name
from ratchet.service.telemetry import Log
from schemas.messages.adapter_event import AdapterEvent, AdapterReport
from schemas.messages.base import BaseModelIdentity, DecodeError, Metadata
from schemas.messages.work import BASE_VERSION
from services.agent.adapter_cache import AdapterCache

log = Log("agent.adapters")


class AdapterSync:
    """One replica's. Works through announcements one by one, the newest first; an older one is passed over."""

    def __init__(self, agent_id: str, bus: Bus, cache: AdapterCache, base: BaseModelIdentity | None) -> None:
        self._agent_id = agent_id
        self._bus = bus
        self._cache = cache
        self._base = base
        self.replica = process_name()
        self._newest: AdapterEvent | None = None
        self._announced = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    @property
    def primary(self) -> str:
        """Return the primary as last announced; the base model before."""
        return self._newest.primary if self._newest is not None else BASE_VERSION

    async def start(self) -> None:
        self._work = asyncio.create_task(self._keep())
        await self._bus.listen(events_topic(self._agent_id), self._receive)

    async def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def _receive(self, delivery: Delivery) -> None:
        """The topic has other messages too, which are for others."""
        if delivery.type != AdapterEvent.TYPE:
            return
        try:
            event = AdapterEvent.decode(delivery.body)
        except DecodeError as error:
            log.error("event-unreadable", error.reason)
            return
        if self._newest is not None and event.revision < self._newest.revision:
            return
        if event.event != "standing":
            log.info("adapter-event", event.reason or event.event, event=event.event, version=event.version)
        self._newest = event
        self._announced.set()

    async def _keep(self) -> None:
        while True:
            await self._announced.wait()
            self._announced.clear()
            assert self._newest is not None
            await self._follow(self._newest)

    async def _follow(self, event: AdapterEvent) -> None:
        refused: dict[str, str] = {}
        for adapter in event.adapters:
            try:
                await self._cache.load(adapter.version, adapter.sha256)
            except (AdapterError, OSError) as error:
                refused[adapter.version] = why = one_line(str(error))
                log.error("adapter-refused", f"{adapter.version} can't be loaded: {why}", version=adapter.version)
            except EngineError as error:
                log.warning("adapter-waits", f"{adapter.version} can't be loaded now: {one_line(str(error))}")
        await self._cache.unload_all_but({adapter.version for adapter in event.adapters})
        try:
            await self._report(event, refused)
        except BusError as error:
            log.warning("not-reported", f"{error}; the next announcement is answered again")

    async def _report(self, event: AdapterEvent, refused: dict[str, str]) -> None:
        report = AdapterReport(
            agent_id=self._agent_id,
            replica=self.replica,
            metadata=Metadata(timestamp=datetime.now(UTC), source="agent"),
            revision=event.revision,
            announced_at=event.metadata.timestamp,
            base=self._base,
            loaded=tuple(sorted(self._cache.versions())),
            refused=refused,
        )
        message_id = f"{self.replica}/{event.revision}"
        await self._bus.publish(ADAPTER_REPORTS, report.encode(), type=AdapterReport.TYPE, message_id=message_id)
