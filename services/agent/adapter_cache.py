"""The adapters an engine has loaded: each once, under an immutable name, after it was checked and has answered.

An adapter is checked as before any traffic and against its sha256, and its sum is taken again once it is loaded; then
it answers a fixed prompt, before any task. The number of adapters is bounded: the least recently used goes, unless a
task uses it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ratchet.adapters.check import check_adapter
from ratchet.adapters.folder import adapter_folder, adapter_sha256, served_name
from ratchet.adapters.limits import LARGEST_RANK, AdapterLimits
from ratchet.bus.topology import HIGH_PRIORITY
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, one_line
from ratchet.service.telemetry import Log
from schemas.messages.work import BASE_VERSION, Arm, Sampling
from services.agent import metrics
from services.agent.engines.engine import Engine, Generation, GenerationRequest

log = Log("agent.adapters")

FIRST_PROMPT = "hello"
FIRST_SAMPLING = Sampling(n=1, temperature=0.0, max_tokens=2)
LEAST_LOGPROB = -9999.0
"""vLLM gives this for a log-probability that is infinite."""


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """`name` is what the engine knows it by."""

    name: str
    sha256: str


class Lease:
    """`async with cache.acquire(arm) as adapter: …`; the base model needs no loading, so that costs nothing."""

    __slots__ = ("_arm", "_cache", "_name")

    def __init__(self, cache: AdapterCache, arm: Arm) -> None:
        self._cache = cache
        self._arm = arm
        self._name: str | None = None

    async def __aenter__(self) -> LoadedAdapter | None:
        if self._arm.adapter_version == BASE_VERSION:
            return None
        adapter = await self._cache.adapter_of(self._arm)
        await self._cache.take(adapter, self._arm.adapter_version)
        self._name = adapter.name
        return adapter

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._name is not None:
            self._cache.give_back(self._name)


class AdapterCache:
    def __init__(
        self, engine: Engine, agent_id: str, adapters_dir: Path, *, max_loaded: int, max_rank: int = LARGEST_RANK
    ) -> None:
        self._engine = engine
        self._agent_id = agent_id
        self._dir = adapters_dir
        self._max_loaded = max_loaded
        self._max_rank = max_rank
        self._changing = asyncio.Lock()
        self._in_use: Counter[str] = Counter()
        self._by_last_use: OrderedDict[str, None] = OrderedDict()
        """Served names that are loaded, have answered, and are not about to be unloaded."""
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
        """Return the adapter by the content it names, or else by that of the folder. Raises AdapterError."""
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
        """Unload adapters that no task uses now, but none of these versions.

        Raises nothing: the rest goes next time.
        """
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
        """Return the loaded ones: version → the name it is served under."""
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
            if adapter.name not in self._by_last_use or adapter.name not in self._engine.adapters():
                await self._load(adapter, version)
                log.info("adapter-loaded", f"loaded {adapter.name}", version=version)
            self._versions[adapter.name] = version
            self._by_last_use[adapter.name] = None
            self._by_last_use.move_to_end(adapter.name)
            metrics.adapters_loaded.set(len(self._engine.adapters()))

    async def _load(self, adapter: LoadedAdapter, version: str) -> None:
        """Check and load an adapter, even one that the engine has from an earlier agent: this one did not check it."""
        folder = adapter_folder(self._dir, self._agent_id, version)
        await self._check_sum(adapter, version)
        await asyncio.to_thread(check_adapter, folder, AdapterLimits(self._max_rank, self._engine.base))
        if adapter.name not in self._engine.adapters():
            await self._make_room()
        try:
            await self._engine.load_adapter(adapter.name, folder)
            await self._check_sum(adapter, version)
            await self._check_answer(adapter.name)
        except (EngineError, OSError):
            await self._take_back(adapter.name)
            raise

    async def _check_sum(self, adapter: LoadedAdapter, version: str) -> None:
        """The folder is read again: a name must never be given to other weights than its own."""
        self._content.pop(version, None)
        found = await self._sha256_on_disk(version)
        if found != adapter.sha256:
            raise AdapterError(
                f"adapter {version} of agent {self._agent_id} is not the one that was registered: its sha256 is "
                f"{found[:8]}…, not {adapter.sha256[:8]}…; restore the folder, or roll back"
            )

    async def _check_answer(self, name: str) -> None:
        """Raises AdapterError for one that can't answer, EngineError where the engine went away."""
        (answer,) = await self._engine.generate(
            [GenerationRequest(FIRST_PROMPT, FIRST_SAMPLING, name, priority=HIGH_PRIORITY)]
        )
        if isinstance(answer, Generation):
            if not _is_likely_enough(answer):
                raise AdapterError(f"{name} answers a first prompt with log-probabilities that are not finite")
        elif isinstance(answer, AdapterError) or (
            self._engine.trouble() is None and not isinstance(answer, PromptRefused)
        ):
            raise AdapterError(one_line(f"{name} can't answer a first prompt: {answer}"))
        elif not isinstance(answer, PromptRefused):
            raise answer

    async def _take_back(self, name: str) -> None:
        try:
            await self._engine.unload_adapter(name)
        except EngineError as error:
            log.warning("not-unloaded", f"{name} was refused and is still loaded: {error}")

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


def _is_likely_enough(answer: Generation) -> bool:
    logprobs = [logprob for sample in answer.samples for logprob in sample.logprobs or ()]
    return all(logprob > LEAST_LOGPROB for logprob in logprobs)
