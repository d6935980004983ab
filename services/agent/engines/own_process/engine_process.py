"""Makes an engine of one that takes one batch at a time: runs it in a child process, starts that again if it dies.

The child has an interpreter of its own: the model does not wait for messages to be read and written, heartbeats and
health checks do not wait for the model, and a model that dies takes no task with it: those in hand are tried again.
Batches are made in the child, where what waits is at hand the moment a batch ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path

from ratchet.adapters.folder import adapter_sha256
from ratchet.bus.in_hand import NEVER
from ratchet.bus.retry_policy import pause_s
from ratchet.service.errors import AdapterError, EngineError, RatchetError
from ratchet.service.telemetry import Log
from schemas.messages.base import BaseModelIdentity
from services.agent.engines.engine import BatchEngine, Generation, GenerationRequest, IdsRequest, TokenPiece
from services.agent.engines.own_process.calls import GENERATE, LOAD_ADAPTER, UNLOAD_ADAPTER, Order, Started
from services.agent.engines.own_process.child_process import ChildProcess

log = Log("agent.engine")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class EngineProcess:
    """`make` gives the engine; it is pickled and called in the child. `max_batch`: samples generated at once."""

    def __init__(
        self,
        make: Callable[[], BatchEngine],
        *,
        max_batch: int,
        begin: Callable[[Order], Awaitable[ChildProcess]] = ChildProcess.begin,
    ) -> None:
        self._order = Order(make, max_batch)
        self._begin = begin
        self._child: ChildProcess | None = None
        self._started: Started | None = None
        self._trouble = "the model is not loaded yet"
        self._adapters: dict[str, tuple[Path, str | None]] = {}
        """Folder and the sum of its content, by name."""
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        child = await self._begin(self._order)
        self._take(child)
        self._keeping = asyncio.create_task(self._keep_running(child))

    def _take(self, child: ChildProcess) -> None:
        self._child, self._started = child, child.started
        for remark in child.started.remarks:
            log.info("engine-remark", remark)

    @property
    def identity(self) -> str:
        return self._loaded_model.identity

    @property
    def base(self) -> BaseModelIdentity | None:
        return self._loaded_model.base

    @property
    def context(self) -> int | None:
        return self._loaded_model.context

    @property
    def _loaded_model(self) -> Started:
        if self._started is None:
            raise EngineError("the model is not loaded: start the engine first")
        return self._started

    @property
    def process_id(self) -> int | None:
        """The child's id; None while there is none."""
        return self._child.pid if self._child is not None else None

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        return await asyncio.gather(*(self._generate(request) for request in requests))

    async def _generate(self, request: GenerationRequest) -> Generation | EngineError:
        try:
            generation: Generation = await self._running.call(GENERATE, request)
        except EngineError as error:
            return error
        return generation

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """Tokens as they are sampled, the last piece of each sample with its reason. Raises EngineError.

        Close it (`contextlib.aclosing`) where its end is not awaited: then the model goes on to what others asked.
        """
        async with aclosing(self._running.stream_ids(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def load_adapter(self, name: str, path: Path) -> None:
        """The child loads it also if the asker gives up, and then it is known."""
        loading = asyncio.create_task(self._load_adapter(name, path))
        loading.add_done_callback(_retrieve_error)
        await asyncio.shield(loading)

    async def _load_adapter(self, name: str, path: Path) -> None:
        await self._running.call(LOAD_ADAPTER, name, path)
        self._adapters[name] = path, await asyncio.to_thread(_sum_of, path)

    async def unload_adapter(self, name: str) -> None:
        self._adapters.pop(name, None)
        await self._running.call(UNLOAD_ADAPTER, name)

    def adapters(self) -> frozenset[str]:
        return frozenset(self._adapters)

    def advanced_at(self) -> float:
        return self._child.advanced_at if self._child is not None else NEVER

    def trouble(self) -> str | None:
        return self._trouble if self._child is None else None

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait((self._keeping,))
        if self._child is not None:
            child, self._child = self._child, None
            self._trouble = "the agent is stopping"
            await child.end()

    @property
    def _running(self) -> ChildProcess:
        if self._child is None:
            raise EngineError(self._trouble)
        return self._child

    async def _keep_running(self, child: ChildProcess) -> None:
        while True:
            why = await child.wait_end()
            self._child, self._trouble = None, why
            log.error("engine-lost", f"{why}; it is started again")
            child = await self._begin_again()
            self._take(child)
            log.info("engine-started", f"answering with {self.identity} again")

    async def _begin_again(self) -> ChildProcess:
        for failures in count(1):
            pause = pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random())
            await asyncio.sleep(pause)
            try:
                return await self._begin_with_adapters()
            except RatchetError as error:
                self._trouble = f"the engine can't be started again: {error}"
                log.warning("engine-lost", self._trouble)
        raise AssertionError("a count has no end")

    async def _begin_with_adapters(self) -> ChildProcess:
        child = await self._begin(self._order)
        try:
            await self._load_adapters(child)
        except BaseException:
            await child.end()
            raise
        return child

    async def _load_adapters(self, child: ChildProcess) -> None:
        """Those the last one had, if they are the same. What can't be loaded any more is forgotten: whoever needs it
        loads it, or fails.
        """
        loaded = dict(self._adapters)
        for name, (path, sum_before) in list(loaded.items()):
            try:
                await child.call(LOAD_ADAPTER, name, path)
                if await asyncio.to_thread(_sum_of, path) != sum_before:
                    await child.call(UNLOAD_ADAPTER, name)
                    raise AdapterError("its files were changed since")
            except AdapterError as error:
                self._adapters.pop(name, None)
                log.warning("adapter-lost", f"{name} is not loaded again: {error}")
        while let_go := loaded.keys() - self._adapters.keys():  # meanwhile
            for name in let_go:
                del loaded[name]
                await child.call(UNLOAD_ADAPTER, name)


def _sum_of(path: Path) -> str | None:
    """Return the hash of an adapter's content; None for a folder that has none."""
    try:
        return adapter_sha256(path)
    except (OSError, AdapterError):
        return None


def _retrieve_error(done: asyncio.Task[None]) -> None:
    """Its error is the asker's, or nobody's any more."""
    if not done.cancelled():
        done.exception()
