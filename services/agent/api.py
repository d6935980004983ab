"""The agent's routes. A prompt answered here shares the engine's batches with the tasks of the queue, and no more:
it is not scored, not logged and not learned from, and it never loads or unloads an adapter.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.operation import OPERATOR, SUBMITTER, VIEWER, operation
from ratchet.http.problem import Problem, problems
from ratchet.http.work import while_connected
from ratchet.service.errors import EngineError
from schemas.api.generate import GenerateAnswer, GeneratedSample, GenerateRequest, LoadedAdapter, LoadedAdapters
from schemas.messages.response import Sample
from schemas.messages.task import Prompt
from schemas.messages.work import BASE_VERSION, Arm, Sampling
from services.agent.adapter_cache import AdapterCache
from services.agent.engines.engine import Engine, Generation, GenerationRequest


@dataclass(frozen=True, slots=True)
class DirectAnswer:
    generation: Generation
    adapter_sha256: str | None
    seconds: float


Generate = Callable[[GenerationRequest], Awaitable[Generation]]


class DirectAnswers:
    """The other way into the engine, past the queues, with what is loaded.

    `generate` is the worker's, so that both share the engine's batches. `primary`: as last announced.
    """

    def __init__(
        self,
        agent_id: str,
        engine: Engine,
        cache: AdapterCache,
        generate: Generate,
        primary: Callable[[], str],
        tenant: str | None = None,
    ) -> None:
        """`tenant`: the one that alone may use the agent."""
        self.agent_id = agent_id
        self.tenant = tenant
        self._engine = engine
        self._cache = cache
        self._generate = generate
        self._primary = primary

    @property
    def engine(self) -> str:
        """Kind of engine, model and revision."""
        return self._engine.identity

    def loaded_names(self) -> dict[str, str]:
        """Version → the name the engine knows it by, without the base model."""
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


def agent_router(agent: DirectAnswers) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["agent"])

    def require_own(caller: Caller) -> None:
        if not caller.may_use(agent.tenant):
            raise Problem(404, "No such agent", "there is no agent here for this tenant", "unknown-agent")

    @router.post("/generate", responses=problems(408, 409))
    @operation(SUBMITTER, OPERATOR, reach="own", title="Let an agent answer directly", tool="generate", answer_s=120.0)
    async def generate(request: Request, body: GenerateRequest, caller: CallerOf) -> GenerateAnswer:
        """Ask the small model directly. The answers are not scored, not logged and not learned from: it is for trying
        things out and comparing adapter versions. To have a task answered well, submit it to the orchestrator.
        """
        require_own(caller)
        version = body.adapter_version or agent.primary()
        if version != BASE_VERSION and version not in agent.loaded_names():
            raise _not_loaded(version, agent)
        sampling = Sampling.model_validate(body.sampling.model_dump() if body.sampling else {})
        answer = await while_connected(request, agent.answer(body.input, sampling, version))
        return GenerateAnswer(
            samples=[_sample(sample) for sample in answer.generation.samples],
            agent_id=agent.agent_id,
            adapter_version=version,
            adapter_sha256=answer.adapter_sha256,
            engine=agent.engine,
            seconds=answer.seconds,
        )

    @router.get("/adapters")
    @operation(
        VIEWER,
        SUBMITTER,
        OPERATOR,
        reach="own",
        title="List loaded adapters",
        tool="loaded_adapters",
        resource="loaded-adapters",
    )
    async def adapters(caller: CallerOf) -> LoadedAdapters:
        """List the adapter versions that this replica of the agent has loaded and can answer with now."""
        require_own(caller)
        primary = agent.primary()
        names: dict[str, str | None] = {BASE_VERSION: None, **agent.loaded_names()}
        items = [LoadedAdapter(version=one, name=name, is_primary=one == primary) for one, name in names.items()]
        return LoadedAdapters(items=items, agent_id=agent.agent_id, engine=agent.engine)

    return router


def _sample(sample: Sample) -> GeneratedSample:
    tokens = len(sample.completion_ids) if sample.completion_ids is not None else None
    return GeneratedSample(text=sample.text, finish_reason=sample.finish_reason, tokens=tokens)


def _not_loaded(version: str, agent: DirectAnswers) -> Problem:
    has = ", ".join((BASE_VERSION, *agent.loaded_names()))
    return Problem(409, "Not loaded", f"this replica has not loaded {version}: it has {has}", "not-loaded")
