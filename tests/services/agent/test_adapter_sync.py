"""A replica loads what is announced, unloads what is retired, and says what it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ratchet.adapters.folder import adapter_sha256
from ratchet.bus.topology import ADAPTER_REPORTS, events_topic, fleet_topology
from ratchet.service.errors import EngineError
from schemas.messages.adapter_event import AdapterEvent, AdapterReport, ServedAdapter
from schemas.messages.base import Metadata
from schemas.messages.work import Arm
from services.agent.adapter_cache import AdapterCache
from services.agent.adapter_sync import AdapterSync
from services.agent.engines.scripted import EchoEngine
from tests.memory_bus import MemoryBus
from tests.ratchet.adapters.making_adapters import NOON, published
from tests.waiting import settled, until


class Replica:
    def __init__(self, folder: Path, engine: EchoEngine) -> None:
        self.folder = folder
        self.bus = MemoryBus(fleet_topology(("small",)))
        self.engine = engine
        self.cache = AdapterCache(self.engine, "small", folder, max_loaded=3)
        self.sync = AdapterSync("small", self.bus, self.cache, None)

    async def announce(self, revision: int, *adapters: ServedAdapter) -> AdapterReport:
        """What it reports after this announcement."""
        before = len(self.bus.deliveries_published(ADAPTER_REPORTS))
        event = AdapterEvent(
            agent_id="small",
            event="standing",
            metadata=Metadata(timestamp=NOON),
            revision=revision,
            primary="v1.0.0",
            adapters=adapters,
        )
        await self.bus.broadcast(events_topic("small"), event.encode(), type=AdapterEvent.TYPE, message_id="e")
        await until(lambda: len(self.bus.deliveries_published(ADAPTER_REPORTS)) > before)
        return AdapterReport.decode(self.bus.deliveries_published(ADAPTER_REPORTS)[-1].body)

    def adapter(self, seed: int) -> ServedAdapter:
        folder = published(self.folder, "small", seed=seed)
        return ServedAdapter(version=folder.name, sha256=adapter_sha256(folder))


@asynccontextmanager
async def replica(folder: Path, engine: EchoEngine | None = None) -> AsyncIterator[Replica]:
    one = Replica(folder, engine or EchoEngine())
    await one.bus.start()
    await one.sync.start()
    try:
        yield one
    finally:
        await one.sync.stop()
        await one.bus.stop(1)


async def test_an_announced_adapter_is_loaded_before_any_task_asks_and_reported(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        adapter = one.adapter(1)

        report = await one.announce(1, adapter)

        assert report.loaded == ("v1.0.1",)
        assert report.announced_at == NOON
        assert one.engine.adapters() == {f"small-v1.0.1-{adapter.sha256[:8]}"}


async def test_a_retired_adapter_is_unloaded_only_when_no_task_uses_it(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        first, second = one.adapter(1), one.adapter(2)
        await one.announce(1, first, second)
        arm = Arm(adapter_version=first.version, adapter_sha256=first.sha256, sequence=0)
        async with one.cache.acquire(arm):
            report = await one.announce(2, second)
            assert report.loaded == ("v1.0.1", "v1.0.2")

        report = await one.announce(3, second)

        assert report.loaded == ("v1.0.2",)


async def test_an_adapter_that_is_not_what_was_registered_is_refused_and_the_rest_loaded(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        good, other = one.adapter(1), one.adapter(2)
        wrong = ServedAdapter(version=other.version, sha256="0" * 64)

        report = await one.announce(1, wrong, good)

        assert report.loaded == ("v1.0.1",)
        assert "is not the one that was registered" in report.refused["v1.0.2"]


async def test_a_stale_announcement_is_passed_over(tmp_path: Path) -> None:
    async with replica(tmp_path) as one:
        adapter = one.adapter(1)
        await one.announce(5, adapter)
        stale = AdapterEvent(agent_id="small", event="standing", revision=4, primary="v1.0.0")
        await one.bus.broadcast(events_topic("small"), stale.encode(), type=AdapterEvent.TYPE, message_id="e")
        await settled()

        report = await one.announce(6, adapter)

        assert report.loaded == ("v1.0.1",)
        assert len(one.bus.deliveries_published(ADAPTER_REPORTS)) == 2


class AwayEngine(EchoEngine):
    async def load_adapter(self, name: str, path: Path) -> None:
        raise EngineError("the server is away")


async def test_an_engine_that_is_away_refuses_no_adapter(tmp_path: Path) -> None:
    async with replica(tmp_path, AwayEngine()) as one:
        report = await one.announce(1, one.adapter(1))

        assert (report.loaded, report.refused) == ((), {})
