"""Lends the adapter a task's arm asks for: loaded once, under an immutable name, checked against its sha256.

Keeps the number of loaded adapters bounded by unloading what was lent longest ago and is not in use.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ratchet.adapters.folder import adapter_folder, adapter_sha256, served_name
from ratchet.service.errors import AdapterError, EngineError
from ratchet.service.telemetry import Log
from schemas.messages.work import BASE_VERSION, Arm
from services.agent import metrics
from services.agent.engines.engine import Engine

log = Log("agent.adapters")


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """`name` is what the engine knows it by."""

    name: str
    sha256: str


class Lease:
    """`async with shelf.lend(arm) as adapter: …`; the base model is not lent, so that costs nothing."""

    __slots__ = ("_arm", "_name", "_shelf")

    def __init__(self, shelf: AdapterCache, arm: Arm) -> None:
        self._shelf = shelf
        self._arm = arm
        self._name: str | None = None

    async def __aenter__(self) -> LoadedAdapter | None:
        if self._arm.adapter_version == BASE_VERSION:
            return None
        adapter = await self._shelf.adapter_of(self._arm)
        await self._shelf.take(adapter, self._arm.adapter_version)
        self._name = adapter.name
        return adapter

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._name is not None:
            self._shelf.give_back(self._name)


class AdapterCache:
    def __init__(self, engine: Engine, agent_id: str, adapters_dir: Path, *, max_loaded: int) -> None:
        self._engine = engine
        self._agent_id = agent_id
        self._dir = adapters_dir
        self._max_loaded = max_loaded
        self._changing = asyncio.Lock()
        self._in_use: Counter[str] = Counter()
        self._by_last_use: OrderedDict[str, None] = OrderedDict()
        """Served names that are loaded and are not about to be unloaded."""
        self._versions: dict[str, str] = {}
        """Served name → version."""
        self._content: dict[str, str] = {}

    def acquire(self, arm: Arm) -> Lease:
        """The arm's adapter, loaded until the block ends; None for the base model.

        Entering raises AdapterError (missing, broken, or not the content the arm names) and EngineError (the engine is
        away).
        """
        return Lease(self, arm)

    async def adapter_of(self, arm: Arm) -> LoadedAdapter:
        """By the content it names, or else that of the folder. Raises AdapterError."""
        sha256 = arm.adapter_sha256 or await self._sha256_on_disk(arm.adapter_version)
        return LoadedAdapter(served_name(self._agent_id, arm.adapter_version, sha256), sha256)

    async def take(self, adapter: LoadedAdapter, version: str) -> None:
        """It stays loaded until it is given back. Raises AdapterError and EngineError: then it was not taken."""
        self._in_use[adapter.name] += 1
        try:
            await self._ensure_loaded(adapter, version)
        except BaseException:
            self.give_back(adapter.name)
            raise

    def give_back(self, name: str) -> None:
        self._in_use[name] -= 1

    async def load(self, version: str, sha256: str) -> None:
        """Have it loaded, before a task asks. Raises AdapterError and EngineError."""
        await self._ensure_loaded(LoadedAdapter(served_name(self._agent_id, version, sha256), sha256), version)

    async def unload_all_but(self, versions: Set[str]) -> None:
        """What no task uses now, and none of these versions is, goes. Raises nothing: the rest goes next time."""
        async with self._changing:
            for name, version in list(self._versions.items()):
                if version not in versions and not self._in_use[name]:
                    try:
                        await self._unload(name, "it is retired")
                    except EngineError as error:
                        log.warning("not-unloaded", f"{name} is still loaded: {error}", version=version)

    def versions(self) -> frozenset[str]:
        """The loaded ones."""
        return frozenset(self.names())

    def names(self) -> dict[str, str]:
        """Of the loaded ones: version → the name it is served under."""
        loaded = self._engine.adapters()
        return {version: name for name, version in self._versions.items() if name in loaded}

    async def _sha256_on_disk(self, version: str) -> str:
        if version not in self._content:
            folder = adapter_folder(self._dir, self._agent_id, version)
            self._content[version] = await asyncio.to_thread(adapter_sha256, folder)
        return self._content[version]

    async def _ensure_loaded(self, adapter: LoadedAdapter, version: str) -> None:
        """A task whose adapter is there does not wait for the loading of another."""
        if adapter.name in self._by_last_use and adapter.name in self._engine.adapters():
            self._by_last_use.move_to_end(adapter.name)
            return
        async with self._changing:
            if adapter.name not in self._engine.adapters():
                await self._check(adapter, version)
                await self._make_room()
                await self._engine.load_adapter(adapter.name, adapter_folder(self._dir, self._agent_id, version))
                log.info("adapter-loaded", f"loaded {adapter.name}", version=version)
            self._versions[adapter.name] = version
            self._by_last_use[adapter.name] = None
            self._by_last_use.move_to_end(adapter.name)
            metrics.adapters_loaded.set(len(self._engine.adapters()))

    async def _check(self, adapter: LoadedAdapter, version: str) -> None:
        """The folder is read again: a name must never be given to other weights than its own."""
        self._content.pop(version, None)
        found = await self._sha256_on_disk(version)
        if found != adapter.sha256:
            raise AdapterError(
                f"adapter {version} of agent {self._agent_id} is not the one that was registered: its sha256 is "
                f"{found[:8]}…, not {adapter.sha256[:8]}…; restore the folder, or roll back"
            )

    async def _make_room(self) -> None:
        for name in list(self._engine.adapters() - self._by_last_use.keys()) + list(self._by_last_use):
            if len(self._engine.adapters()) < self._max_loaded:
                return
            if not self._in_use[name]:
                await self._unload(name, "to make room")

    async def _unload(self, name: str, why: str) -> None:
        self._by_last_use.pop(name, None)
        await self._engine.unload_adapter(name)
        self._versions.pop(name, None)
        metrics.adapters_loaded.set(len(self._engine.adapters()))
        log.info("adapter-unloaded", f"unloaded {name}: {why}")
