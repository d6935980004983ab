"""The engine alone: called back to back with full batches, or, if it batches by itself, kept at its concurrency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from bench.generation.workload import Rate, Workload, tokens
from ratchet.service.errors import EngineError
from services.agent.engines.engine import BatchEngine, Engine, Generation
from services.agent.engines.installed import is_batch_engine, make_batch_engine, make_engine
from services.agent.settings import AgentSettings

BareRate = Callable[[Workload, float], Awaitable[Rate]]


@asynccontextmanager
async def bare_engine(settings: AgentSettings) -> AsyncIterator[BareRate]:
    """What measures the engine of the settings, in this process, for so many seconds."""
    if is_batch_engine(settings.agent_engine):
        batch_engine = make_batch_engine(settings)
        batch_engine.start()
        yield lambda workload, seconds: _of_batches(batch_engine, workload, seconds)
        return
    engine = make_engine(settings)
    await engine.start()
    try:
        yield lambda workload, seconds: _of_streams(engine, workload, seconds)
    finally:
        await engine.stop()


async def _of_batches(engine: BatchEngine, workload: Workload, seconds: float) -> Rate:
    """In the main thread, as in the fleet: in others the allocator returns memory more often. Nothing else runs."""
    started, cpu = time.perf_counter(), time.process_time()
    count = seed = 0
    while time.perf_counter() < started + seconds:
        count += _tokens(engine.generate(workload.requests(seed)))
        seed += 1
    return Rate(count, time.perf_counter() - started, time.process_time() - cpu)


async def _of_streams(engine: Engine, workload: Workload, seconds: float) -> Rate:
    """One request under way in each, as many as the workload's concurrency."""
    started, cpu = time.perf_counter(), time.process_time()
    streams = (_stream(engine, workload, started + seconds, number) for number in range(workload.concurrency))
    return Rate(sum(await asyncio.gather(*streams)), time.perf_counter() - started, time.process_time() - cpu)


async def _stream(engine: Engine, workload: Workload, until: float, number: int) -> int:
    count, seed = 0, number
    while time.perf_counter() < until:
        count += _tokens(await engine.generate(workload.requests(seed)[:1]))
        seed += workload.concurrency
    return count


def _tokens(answers: Sequence[Generation | EngineError]) -> int:
    if errors := [answer for answer in answers if isinstance(answer, EngineError)]:
        raise errors[0]
    return sum(tokens(answer.samples) for answer in answers if isinstance(answer, Generation))
