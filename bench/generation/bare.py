"""The engine alone: called back to back with full batches, or, if it batches by itself, kept at its concurrency."""

from __future__ import annotations

import asyncio
import time

from bench.generation.workload import Rate, Workload, tokens
from services.agent.engines.engine import Engine, Generation
from services.errors import EngineError


async def bare_rate(engine: Engine, workload: Workload, seconds: float, *, in_batches: bool) -> Rate:
    """Of an engine that is started and warm. `in_batches`: it takes one at a time."""
    started, cpu = time.perf_counter(), time.process_time()
    streams = 1 if in_batches else workload.concurrency
    counts = await asyncio.gather(*(_stream(engine, workload, started + seconds, n, streams) for n in range(streams)))
    return Rate(sum(counts), time.perf_counter() - started, time.process_time() - cpu)


async def _stream(engine: Engine, workload: Workload, until: float, number: int, streams: int) -> int:
    count, seed = 0, number
    while time.perf_counter() < until:
        requests = workload.requests(seed)[: workload.concurrency // streams]
        count += sum(_tokens(answer) for answer in await engine.generate(requests))
        seed += streams
    return count


def _tokens(answer: Generation | EngineError) -> int:
    if isinstance(answer, EngineError):
        raise answer
    return tokens(answer.samples)
