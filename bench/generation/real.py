"""`python -m bench.generation --real`: groups of 8 on a real model, by all that can generate them here, in turns.

Contestants: plain `generate()` in whole batches of 64, the embedded engine, the fleet over it, and vLLM's server on the
CPU where its environment is (`make vllm-test` makes it). Each gets the same tasks at once, and its tokens count until
the last answer: the seconds of the clock, and the CPU seconds of the processes that generate. Workloads: `examples`,
where all prompts begin with the same example turns, and `distinct`, where they share the system prompt at most.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.generation.fleet import Client, agent_process
from bench.generation.workload import Rate, tokens
from bench.machine import machine
from ratchet.models.known import model_folder
from ratchet.models.loading import load_language_model
from schemas.messages.task import ChatMessage
from schemas.messages.work import Sampling
from services.agent.engines.engine import BatchEngine, Generation, GenerationRequest
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.transformers_engine import TransformersEngine
from services.agent.engines.vllm_engine import VllmEngine
from services.agent.engines.whole_batches import WholeBatches
from services.agent.settings import AgentSettings
from services.cli.fleet.local_broker import free_port

ROOT = Path(__file__).parents[2]
OUT = ROOT / "bench" / "out" / "generation-real.json"
MODEL = "smollm2"
SAMPLING = Sampling(n=8, temperature=1.0, max_tokens=30)
BARS = {("engine", "generate"): 3.0, ("engine", "vllm"): 1.0, ("fleet", "engine"): 0.95}
"""Of tokens/s, on `examples`."""
READY_S = 1800.0

GOODS = ("oak chairs", "walnut desks", "green lamps", "linen curtains", "copper pans", "wool rugs", "glass doors")
CITIES = ("Lisbon", "Oslo", "Prague", "Vienna", "Rome", "Dublin", "Athens", "Warsaw", "Paris", "Riga")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def _order(rng: random.Random) -> tuple[str, str]:
    number, pieces, good = rng.randrange(1000, 10_000), rng.randrange(2, 10), rng.choice(GOODS)
    city, day = rng.choice(CITIES), rng.choice(DAYS)
    asked = f"Write to the customer of order {number}: {pieces} {good}, to {city}, ready on {day}."
    return asked, f"Dear customer, your {pieces} {good} for {city} are ready on {day}."


def prompts(workload: str, number: int, seed: int) -> list[tuple[ChatMessage, ...]]:
    """About 165 tokens of SmolLM2 each."""
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


def _counted(answers: Sequence[Any]) -> int:
    for answer in answers:
        if not isinstance(answer, Generation):
            raise RuntimeError(f"a task was not answered: {answer}")
    return sum(tokens(answer.samples) for answer in answers)


def here(engine: BatchEngine) -> Run:
    """In the main thread of this process."""

    async def run(requests: Sequence[GenerationRequest]) -> Rate:
        started, cpu = time.perf_counter(), time.process_time()
        sampled = _counted(engine.generate(requests))
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
    """On a connection of its own each time: while an engine generates in this process, nobody answers heartbeats."""
    numbers = count()

    async def run(requests: Sequence[GenerationRequest]) -> Rate:
        async with Client(settings, agent, numbers) as client:
            return await client.work_off([request.prompt for request in requests], SAMPLING)

    return run


@asynccontextmanager
async def vllm_server(folder: Path, log: Path) -> AsyncIterator[Run]:
    """Of `make vllm-test`, on a port of its own."""
    port = free_port()
    command = ["tests/integration/vllm_server.sh", str(folder.resolve()), str(port)]
    with log.open("w") as output:
        server = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=output, stderr=output, env=_without_adapters()
        )
    settings = AgentSettings.read(
        agent_engine="vllm",
        agent_model="base",
        agent_tokenizer=str(folder),
        agent_vllm_url=f"http://127.0.0.1:{port}",
        agent_generation_timeout_s=READY_S,
    )
    engine = VllmEngine.from_settings(settings)
    try:
        async with asyncio.timeout(READY_S):
            await engine.start()
        yield lambda requests: _asked(engine, psutil.Process(server.pid), requests)
    finally:
        await engine.stop()
        _end(psutil.Process(server.pid))
        await server.wait()


def _without_adapters() -> dict[str, str]:
    """The script turns LoRA on, for which vLLM pays; here nobody has an adapter."""
    return os.environ | {"RATCHET_VLLM_ARGUMENTS": "--no-enable-lora --enable-prefix-caching --max-model-len 2048"}


def _end(server: psutil.Process) -> None:
    for process in (*server.children(recursive=True), server):
        process.kill()


async def _asked(engine: VllmEngine, server: psutil.Process, requests: Sequence[GenerationRequest]) -> Rate:
    started, cpu = time.perf_counter(), _cpu_s(server)
    sampled = _counted(await engine.generate(requests))
    return Rate(sampled, time.perf_counter() - started, _cpu_s(server) - cpu)


def _cpu_s(process: psutil.Process) -> float:
    used = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in used))


@asynccontextmanager
async def contestants(settings: AgentSettings, names: Sequence[str], logs: Path) -> AsyncIterator[list[Contestant]]:
    folder = model_folder(settings.agent_model)
    found: list[Contestant] = []
    async with AsyncExitStack() as stack:
        if "generate" in names or "engine" in names:
            language_model = load_language_model(settings.agent_model, threads=settings.agent_threads or 1)
            for kind, name in ((PlainGenerate, "generate"), (TransformersEngine, "engine")):
                if name in names:
                    engine = kind(lambda: language_model, max_batch=64, choose_threads=settings.agent_threads is None)
                    engine.start()
                    found.append(Contestant(name, here(engine)))
        if "fleet" in names:
            agent = await stack.enter_async_context(agent_process(settings, logs / "agent.log"))
            found.append(Contestant("fleet", fleet(settings, agent)))
        if "vllm" in names:
            found.append(Contestant("vllm", await stack.enter_async_context(vllm_server(folder, logs / "vllm.log"))))
        yield found


async def measure(
    settings: AgentSettings, names: Sequence[str], workloads: Sequence[str], groups: int, rounds: int
) -> dict[str, Any]:
    """By workload and contestant, all rounds. The first, unmeasured turn is small: it warms caches and threads up."""
    with tempfile.TemporaryDirectory() as logs:
        async with contestants(settings, names, Path(logs)) as ready:
            rates: dict[str, dict[str, list[Rate]]] = {one: {name: [] for name in names} for one in workloads}
            for contestant in ready:
                await contestant.run(_requests("distinct", 2, seed=-1))
            for number in range(rounds):
                for workload in workloads:
                    for contestant in ready:
                        rate = await contestant.run(_requests(workload, groups, seed=number))
                        rates[workload][contestant.name].append(rate)
                        said = f"{rate.per_s:.0f} tokens/s, {rate.per_cpu_s:.0f} a CPU second"
                        print(
                            f"{workload} {number + 1}/{rounds}: {contestant.name} {said}", file=sys.stderr, flush=True
                        )
    return {one: {name: _figures(its) for name, its in by_name.items()} for one, by_name in rates.items()}


def _requests(workload: str, groups: int, seed: int) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, SAMPLING) for prompt in prompts(workload, groups, seed)]


def _figures(rates: Sequence[Rate]) -> dict[str, Any]:
    return {
        "tokens_per_s": median(one.per_s for one in rates),
        "tokens_per_cpu_s": median(one.per_cpu_s for one in rates),
        "rounds": [asdict(one) for one in rates],
    }


def bars(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Of those that were measured; a ratio of CPU seconds beside that of the clock."""
    found = []
    for (better, other), bar in BARS.items():
        mine, its = figures.get(better), figures.get(other)
        if mine and its:
            ratio, cpu = (mine[one] / its[one] for one in ("tokens_per_s", "tokens_per_cpu_s"))
            found.append(
                {"of": better, "over": other, "ratio": ratio, "cpu_ratio": cpu, "bar": bar, "met": ratio >= bar}
            )
    return found


def table(found: dict[str, Any]) -> str:
    lines = [f"{found['model']} on {found['machine']}, {found['groups']} groups of 8, medians of {found['rounds']}"]
    for workload, figures in found["workloads"].items():
        lines.append(f"\n{workload:10}{'tokens/s':>12}{'tokens/CPU-s':>16}")
        lines += [
            f"{name:10}{one['tokens_per_s']:12.1f}{one['tokens_per_cpu_s']:16.1f}" for name, one in figures.items()
        ]
    lines.append("")
    for bar in found["bars"]:
        said = f"{bar['of']} over {bar['over']}: {bar['ratio']:.2f} (CPU seconds: {bar['cpu_ratio']:.2f})"
        lines.append(f"{said}, {'met' if bar['met'] else 'MISSED'}: bar {bar['bar']}")
    return "\n".join(lines)


def report(settings: AgentSettings, workloads: dict[str, Any], groups: int, rounds: int) -> dict[str, Any]:
    return {
        "model": settings.agent_model,
        "machine": machine(),
        "groups": groups,
        "rounds": rounds,
        "sampling": SAMPLING.model_dump(),
        "workloads": workloads,
        "bars": bars(workloads.get("examples", {})),
    }


def write(found: dict[str, Any]) -> None:
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n")
