"""The agent: a Work in, a Response out. Adapters come from adapter_cache.py; how to generate is an engine's affair."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from fastapi import APIRouter

from ratchet.bus.in_hand import NEVER, STALLED_AFTER_S, Stepwise
from ratchet.bus.protocol import Bus, Delivery, decode_delivery
from ratchet.bus.topology import HIGH_PRIORITY, work_queue
from ratchet.concurrency.own_share import OwnShare
from ratchet.logs.cascaded import is_asked_of_big
from ratchet.logs.names import is_own
from ratchet.programs.declared import agents_with_programs
from ratchet.rollouts.answers import Answers, response_of
from ratchet.rollouts.cancellations import Cancellations
from ratchet.runtime.runner import Subscription
from ratchet.service.deadline_time import DeadlineTime
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, Reject, Retry
from ratchet.service.settings import pairs
from ratchet.service.telemetry import Log, task_in_hand
from schemas.api.generate import ServedModel
from schemas.messages.response import GenerationLatencies, Response
from schemas.messages.task import Constraints
from schemas.messages.work import BASE_VERSION, Work
from services.agent import metrics
from services.agent.adapter_cache import AdapterCache, LoadedAdapter
from services.agent.adapter_sync import AdapterSync
from services.agent.api import DirectAnswers, agent_router
from services.agent.conversation_calls import ConversationCalls, conversation_router
from services.agent.engines.engine import Engine, Generation, GenerationRequest, StreamsIds
from services.agent.rewards import RewardListener
from services.agent.settings import AgentSettings

log = Log("agent")

ENGINE_POLL_S = 0.5
"""Seconds between two looks at an engine that is away."""


class AgentWorker:
    """Answers the Work of one agent. Every Work ends as a Response, an expired task, or a raised Retry or Reject."""

    name = "agent"

    def __init__(self, settings: AgentSettings, bus: Bus, engine: Engine, time: DeadlineTime | None = None) -> None:
        self._agent_id = settings.agent_id
        self._tenant = pairs(settings.agent_tenants).get(settings.agent_id)
        self._takes_tasks = settings.agent_id not in agents_with_programs(settings.programs, settings.agents)
        self._prefetch = settings.agent_prefetch
        self._generation_timeout_s = settings.agent_generation_timeout_s
        self._tokenizer = settings.tokenizer_name
        self._tokenizer_revision = settings.agent_model_revision
        self._bus = bus
        self._engine = engine
        self._time = time or DeadlineTime()
        self._cache = AdapterCache(
            engine,
            settings.agent_id,
            settings.adapters_dir,
            max_loaded=settings.agent_max_adapters,
            max_rank=settings.adapter_max_rank,
        )
        self._calls = ConversationCalls(self._served_model, engine, self._cache)
        self._answers = Answers(bus)
        self._own_share = OwnShare(settings.own_share, min(settings.agent_max_batch, settings.agent_prefetch))
        self._cancellations = Cancellations()
        self._rewards = RewardListener(self._agent_id, bus)
        self._sync: AdapterSync | None = None
        self._waited_at = NEVER

    def routers(self) -> Sequence[APIRouter]:
        direct = DirectAnswers(self._agent_id, self._engine, self._cache, self._generate, self._primary, self._tenant)
        return [agent_router(direct), conversation_router(self._calls)]

    def _served_model(self) -> ServedModel:
        return ServedModel(
            agent_id=self._agent_id,
            engine=self._engine.identity,
            tokenizer=self._tokenizer,
            revision=self._tokenizer_revision,
            context=self._engine.context if isinstance(self._engine, StreamsIds) else None,
        )

    async def start(self) -> None:
        await self._engine.start()
        self._time.start()
        whom = "" if self._takes_tasks else "programs, which take its tasks, "
        log.info("engine-started", f"answering {whom}with {self._engine.identity}", agent_id=self._agent_id)
        self._sync = AdapterSync(self._agent_id, self._bus, self._cache, self._engine.base)
        await self._sync.start()
        await self._rewards.start()
        await self._cancellations.listen(self._bus, (self._agent_id,) if self._takes_tasks else ())

    def subscriptions(self) -> Sequence[Subscription]:
        """None where programs answer in its place: it serves its model to them."""
        if not self._takes_tasks:
            return []
        queues = (work_queue(self._agent_id), work_queue(self._agent_id, priority=HIGH_PRIORITY))
        stalled_after_s = STALLED_AFTER_S + self._generation_timeout_s
        return [
            Subscription(queue, self.handle, self._prefetch, stalled_after_s, self._advanced_at) for queue in queues
        ]

    def _advanced_at(self) -> float:
        """Tokens that still come are progress, and so is waiting for an engine that says why it is away."""
        engine = self._engine.advanced_at() if isinstance(self._engine, Stepwise) else NEVER
        return max(self._waited_at, engine)

    def trouble(self) -> str | None:
        return self._engine.trouble()

    def _primary(self) -> str:
        return self._sync.primary if self._sync is not None else BASE_VERSION

    async def stop(self) -> None:
        self._time.stop()
        if self._sync is not None:
            await self._sync.stop()
        await self._calls.close()
        await self._engine.stop()

    async def handle(self, delivery: Delivery) -> None:
        """Publish the Response to one Work. A Work seen before gets the answer it got before."""
        work = self._read(delivery)
        task_in_hand.set(work.task_id)
        left_s = self._time.left_of(work)
        own = is_own(work.arm.experiment_id) and not is_asked_of_big(work.arm.experiment_id)
        async with self._own_share.turn(work.sampling.n, own=own, within_s=left_s):
            if work.task_id in self._cancellations:
                metrics.cancelled.inc()
                log.info("cancelled", "not answered: its task was cancelled")
                return
            if not await self._in_time(work):
                metrics.expired.inc()
                log.info("expired", "not answered: the deadline passed while it waited", deadline=work.deadline)
                return
            await self._answers.answer(work, delivery.body, lambda: self._respond(work, delivery.attempts))

    def _read(self, delivery: Delivery) -> Work:
        work = decode_delivery(Work, delivery)
        if work.agent_id != self._agent_id:
            raise Reject(f"this Work is for agent {work.agent_id!r} but lay in the queue of {self._agent_id!r}")
        return work

    async def _in_time(self, work: Work) -> bool:
        """Wait while the engine is away, so that its absence costs no task its attempts. False: too late."""
        while self._time.left_of(work) > 0:
            if self._engine.trouble() is None:
                return True
            self._waited_at = time.monotonic()
            await asyncio.sleep(ENGINE_POLL_S)
        return False

    async def _respond(self, work: Work, attempts: int | None) -> Response:
        queue_s = max(0.0, time.time() - work.admitted_at.timestamp())
        started = time.perf_counter()
        adapter: LoadedAdapter | None = None
        try:
            async with self._cache.acquire(work.arm) as adapter:
                name = adapter.name if adapter else None
                request = GenerationRequest(
                    work.input,
                    work.sampling,
                    name,
                    work.priority,
                    tools=work.tools or (),
                    token_texts=bool(work.needs_token_texts),
                    format=work.format,
                )
                answer: Generation | EngineError = await self._generate(request, work.constraints)
        except (PromptRefused, AdapterError) as error:
            answer = error
        except EngineError as error:
            metrics.retried.inc()
            raise Retry(f"the engine could not answer task {work.task_id}: {error}") from error
        generate_s = time.perf_counter() - started
        latencies = GenerationLatencies(queue_s=queue_s, generate_s=generate_s, attempts=attempts)
        metrics.observe(work.arm.adapter_version, answer, latencies)
        generation = answer if isinstance(answer, Generation) else None
        return response_of(
            work,
            generation.samples if generation else (),
            source=None,
            engine=self._engine.identity,
            error=None if generation else str(answer),
            latencies=latencies,
            prompt_ids=generation.prompt_ids if generation else None,
            grammar=generation.grammar if generation else None,
            adapter_sha256=adapter.sha256 if adapter else None,
        )

    async def _generate(self, request: GenerationRequest, constraints: Constraints | None = None) -> Generation:
        """Return the answer, which is one call without tools, within the seconds of the task's constraints.

        `tokens` is in the sampling since the task was admitted. Raises PromptRefused where the time is over.
        """
        seconds = constraints.seconds if constraints else None
        try:
            async with asyncio.timeout(seconds):
                (answer,) = await self._engine.generate([request])
        except TimeoutError:
            if seconds is None:
                raise
            raise PromptRefused(f"constraints.seconds: it was not generated within {seconds:g} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer
