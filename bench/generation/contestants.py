"""Contestants (plain `generate()`, the embedded engine, the fleet over it), and the prompts.

The fleet is an agent in a process of its own: Work is published straight to its queue, Responses are read back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from bench.pipeline.cpu import cpu_seconds
from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, work_queue
from ratchet.models.loading import load_language_model
from schemas.messages.response import Response, Sample
from schemas.messages.task import ChatMessage
from schemas.messages.work import Arm, Sampling, Work
from services.agent.engines.engine import BatchEngine, Generation, GenerationRequest
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.transformers_engine import TransformersEngine
from services.agent.engines.whole_batches import WholeBatches
from services.agent.settings import AgentSettings
from tests.acceptance.fleet import Member
from tests.private_broker import free_port

SAMPLING = Sampling(n=8, temperature=1.0, max_tokens=30)
ROWS = 64
READY_TIMEOUT_S = 300.0

GOODS = ("oak chairs", "walnut desks", "green lamps", "linen curtains", "copper pans", "wool rugs", "glass doors")
CITIES = ("Lisbon", "Oslo", "Prague", "Vienna", "Rome", "Dublin", "Athens", "Warsaw", "Paris", "Riga")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def _order(rng: random.Random) -> tuple[str, str]:
    number, pieces, good = rng.randrange(1000, 10_000), rng.randrange(2, 10), rng.choice(GOODS)
    city, day = rng.choice(CITIES), rng.choice(DAYS)
    asked = f"Write to the customer of order {number}: {pieces} {good}, to {city}, ready on {day}."
    return asked, f"Dear customer, your {pieces} {good} for {city} are ready on {day}."


def make_requests(number: int, seed: int) -> list[GenerationRequest]:
    """Return prompts of about 165 SmolLM2 tokens each, which all begin with the same two example turns."""
    common = random.Random(seed)
    turns = [
        message
        for asked, told in (_order(common), _order(common))
        for message in (ChatMessage(role="user", content=asked), ChatMessage(role="assistant", content=told))
    ]
    found = []
    for place in range(number):
        rng = random.Random(f"{seed} {place}")
        asked = f"{_order(rng)[0]} They also asked about {rng.choice(GOODS)}."
        found.append(GenerationRequest((*turns, ChatMessage(role="user", content=asked)), SAMPLING))
    return found


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens, the seconds they took, and the CPU seconds of the process with the engine, all its threads included."""

    tokens: int
    seconds: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def per_cpu_s(self) -> float:
        return self.tokens / self.cpu_s


Run = Callable[[Sequence[GenerationRequest]], Awaitable[Rate]]


@asynccontextmanager
async def contestants(settings: AgentSettings, logs: Path) -> AsyncIterator[dict[str, Run]]:
    language_model = load_language_model(settings.agent_model, threads=1)
    found: dict[str, Run] = {}
    for name, kind in (("generate", PlainGenerate), ("engine", TransformersEngine)):
        engine = kind(lambda: language_model, max_batch=ROWS, choose_threads=True)
        engine.start()
        found[name] = run_here(engine)
    async with agent_process(settings, logs / "agent.log") as agent:
        yield found | {"fleet": run_by_agent(settings, agent)}


class PlainGenerate(TransformersEngine):
    """transformers' own `generate()`: whole batches of 64 rows, every row with its prompt."""

    def start(self) -> None:
        language_model = self._load()
        adapters = RowAdapters(language_model.model)
        batches = WholeBatches(
            language_model.model, language_model.tokenizer, adapters, end_ids=language_model.end_ids, max_rows=ROWS
        )
        self._loaded = language_model, adapters, batches


def run_here(engine: BatchEngine) -> Run:
    """Return a run of the engine in the main thread of this process."""

    async def run(requests: Sequence[GenerationRequest]) -> Rate:
        started, cpu, tokens = time.perf_counter(), time.process_time(), 0
        for answer in engine.generate(requests):
            if not isinstance(answer, Generation):
                raise RuntimeError(f"a task was not answered: {answer}")
            tokens += _count_tokens(answer.samples)
        return Rate(tokens, time.perf_counter() - started, time.process_time() - cpu)

    return run


@asynccontextmanager
async def agent_process(settings: AgentSettings, log: Path) -> AsyncIterator[Member]:
    """Run an agent, ready within the block; its log goes to the file."""
    port = free_port()
    environment = {
        "RATCHET_AMQP_URL": settings.amqp_url.get_secret_value(),
        "RATCHET_AGENT_MODEL": settings.agent_model,
        "RATCHET_AGENT_HTTP_PORT": str(port),
    }
    agent = Member("agent", "services.agent", port, environment, log)
    agent.start()
    try:
        await asyncio.to_thread(agent.wait_until_ready, READY_TIMEOUT_S)
        yield agent
    finally:
        assert agent.process is not None
        agent.process.terminate()
        await asyncio.to_thread(agent.process.wait)


def run_by_agent(settings: AgentSettings, agent: Member) -> Run:
    """Return a run of the fleet, with a connection each: an engine in this process would let heartbeats lapse.

    All is asked at once, and the last answer is waited for.
    """
    numbers, queue = count(), work_queue(settings.agent_id)

    def cpu_s() -> float:
        return cpu_seconds({"agent": [agent.pid]})["agent"]

    async def run(requests: Sequence[GenerationRequest]) -> Rate:
        tokens, answered = 0, asyncio.Semaphore(0)

        async def receive(delivery: Delivery) -> None:
            nonlocal tokens
            response = Response.decode(delivery.body)
            if response.error:
                raise RuntimeError(response.error)
            tokens += _count_tokens(response.samples)
            answered.release()

        async def ask(number: int, request: GenerationRequest) -> None:
            now = datetime.now(UTC)
            work = Work(
                task_id=f"bench-{number}",
                input=request.prompt,
                agent_id=settings.agent_id,
                deadline=now + timedelta(hours=1),
                arm=Arm(sequence=number),
                sampling=request.sampling,
                admitted_at=now,
            )
            await bus.publish(queue, work.encode(), type=Work.TYPE, message_id=work.task_id)

        bus = RabbitBus.from_settings(settings, name="bench")
        await bus.start()
        try:
            await bus.consume(RESPONSES, receive, prefetch=1000)
            begun, cpu = time.perf_counter(), cpu_s()
            await asyncio.gather(*(ask(next(numbers), request) for request in requests))
            for _ in requests:
                await answered.acquire()
            return Rate(tokens, time.perf_counter() - begun, cpu_s() - cpu)
        finally:
            await bus.stop(5.0)

    return run


def _count_tokens(samples: Sequence[Sample]) -> int:
    return sum(len(sample.completion_ids or ()) for sample in samples)
