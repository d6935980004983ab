"""Answers what comes past the queues, with what is loaded: the other way into the engine, beside the worker's."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ratchet.service.errors import EngineError
from schemas.messages.task import Prompt
from schemas.messages.work import BASE_VERSION, Arm, Sampling
from services.agent.adapter_cache import AdapterCache
from services.agent.api import DirectAnswer
from services.agent.engines.engine import Engine, Generation, GenerationRequest

Generate = Callable[[GenerationRequest], Awaitable[Generation]]


class DirectAnswers:
    """`generate` is the worker's, so that both share the engine's batches. `primary`: as last announced."""

    def __init__(
        self, agent_id: str, engine: Engine, cache: AdapterCache, generate: Generate, primary: Callable[[], str]
    ) -> None:
        self.agent_id = agent_id
        self._engine = engine
        self._cache = cache
        self._generate = generate
        self._primary = primary

    @property
    def engine(self) -> str:
        return self._engine.identity

    def loaded(self) -> dict[str, str]:
        return self._cache.names()

    def primary(self) -> str:
        """The base model until the primary is announced and loaded."""
        primary = self._primary()
        return primary if primary in self._cache.versions() else BASE_VERSION

    async def answer(self, prompt: Prompt, sampling: Sampling, version: str) -> DirectAnswer:
        """Raises EngineError at once where the engine is away, so that the caller can try another replica."""
        if trouble := self._engine.trouble():
            raise EngineError(trouble)
        began = time.perf_counter()
        async with self._cache.acquire(Arm(adapter_version=version, sequence=0)) as adapter:
            generation = await self._generate(GenerationRequest(prompt, sampling, adapter.name if adapter else None))
        return DirectAnswer(generation, adapter.sha256 if adapter else None, time.perf_counter() - began)
