"""Contestants (plain `generate()`, the embedded engine, the fleet over it), and the prompts."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from bench.generation.fleet import Client, Rate, agent_process, count_tokens
from ratchet.models.loading import load_language_model
from schemas.messages.task import ChatMessage
from schemas.messages.work import Sampling
from services.agent.engines.engine import BatchEngine, Generation, GenerationRequest
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.transformers_engine import TransformersEngine
from services.agent.engines.whole_batches import WholeBatches
from services.agent.settings import AgentSettings

MODEL = "smollm2"
SAMPLING = Sampling(n=8, temperature=1.0, max_tokens=30)

GOODS = ("oak chairs", "walnut desks", "green lamps", "linen curtains", "copper pans", "wool rugs", "glass doors")
CITIES = ("Lisbon", "Oslo", "Prague", "Vienna", "Rome", "Dublin", "Athens", "Warsaw", "Paris", "Riga")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def _order(rng: random.Random) -> tuple[str, str]:
    number, pieces, good = rng.randrange(1000, 10_000), rng.randrange(2, 10), rng.choice(GOODS)
    city, day = rng.choice(CITIES), rng.choice(DAYS)
    asked = f"Write to the customer of order {number}: {pieces} {good}, to {city}, ready on {day}."
    return asked, f"Dear customer, your {pieces} {good} for {city} are ready on {day}."


def prompts(workload: str, number: int, seed: int) -> list[tuple[ChatMessage, ...]]:
    """Return prompts of about 165 SmolLM2 tokens each."""
    common = random.Random(seed)
    shared = [_order(common) for _ in range(2)]
    found = []
    for place in range(number):
        rng = random.Random(f"{seed} {place}")
        examples = shared if workload == "examples" else [_order(rng) for _ in range(2)]
        turns = [
            message
            for asked, told in examples
            for message in (ChatMessage(role="user", content=asked), ChatMessage(role="assistant", content=told))
        ]
        asked = f"{_order(rng)[0]} They also asked about {rng.choice(GOODS)}."
        found.append((*turns, ChatMessage(role="user", content=asked)))
    return found


Run = Callable[[Sequence[GenerationRequest]], Awaitable[Rate]]


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    run: Run


def _count(answers: Sequence[Any]) -> int:
    for answer in answers:
        if not isinstance(answer, Generation):
            raise RuntimeError(f"a task was not answered: {answer}")
    return sum(count_tokens(answer.samples) for answer in answers)


def run_here(engine: BatchEngine) -> Run:
    """Return a run of the engine in the main thread of this process."""

    async def run(requests: Sequence[GenerationRequest]) -> Rate:
        started, cpu = time.perf_counter(), time.process_time()
        sampled = _count(engine.generate(requests))
        return Rate(sampled, time.perf_counter() - started, time.process_time() - cpu)

    return run


class PlainGenerate(TransformersEngine):
    """transformers' own `generate()`: whole batches of 64 rows, every row with its prompt."""

    def start(self) -> None:
        language_model = self._load()
        adapters = RowAdapters(language_model.model)
        batches = WholeBatches(
            language_model.model, language_model.tokenizer, adapters, end_ids=language_model.end_ids, max_rows=64
        )
        self._loaded = language_model, adapters, batches


def fleet(settings: AgentSettings, agent: psutil.Process) -> Run:
    """Return a run of the fleet, with a connection each: an engine in this process would let heartbeats lapse."""
    numbers = count()

    async def run(requests: Sequence[GenerationRequest]) -> Rate:
        async with Client(settings, agent, numbers) as client:
            return await client.work_off([request.prompt for request in requests], SAMPLING)

    return run


@asynccontextmanager
async def contestants(settings: AgentSettings, names: Sequence[str], logs: Path) -> AsyncIterator[list[Contestant]]:
    found: list[Contestant] = []
    async with AsyncExitStack() as stack:
        if "generate" in names or "engine" in names:
            language_model = load_language_model(settings.agent_model, threads=settings.agent_threads or 1)
            for kind, name in ((PlainGenerate, "generate"), (TransformersEngine, "engine")):
                if name in names:
                    engine = kind(lambda: language_model, max_batch=64, choose_threads=settings.agent_threads is None)
                    engine.start()
                    found.append(Contestant(name, run_here(engine)))
        if "fleet" in names:
            agent = await stack.enter_async_context(agent_process(settings, logs / "agent.log"))
            found.append(Contestant("fleet", fleet(settings, agent)))
        yield found
