"""A runner in this process, with its sandboxes, in front of an agent that echoes in another; no broker, no disk but its
own."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.rig import save_tokenizer
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, fleet_topology, work_queue
from ratchet.http.server.application import application
from ratchet.programs.declared import Program, Programs
from schemas.messages.response import Response
from schemas.messages.work import Sampling, Work
from services.agent.engines.scripted import EchoEngine
from services.agent.settings import AgentSettings
from services.runner.settings import RunnerSettings
from services.runner.worker import RunnerWorker
from tests.making_work import work
from tests.memory_bus import MemoryBus
from tests.services.agent.test_agent_worker import agent
from tests.serving import serving

STARTED_WITHIN_S = 60.0
MOST_TOKENS = 200


class _Long(EchoEngine):
    """An echo with the context of a large model."""

    context = 131_072


@dataclass(frozen=True)
class Model:
    """The model's addresses: for runners by token ids, and for plain processes in OpenAI's dialect."""

    agent_url: str
    plain_url: str


@contextmanager
def model(folder: Path, latency_s: float) -> Iterator[Model]:
    """Run the model in a process of its own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, folder, latency_s), daemon=True)
    process.start()
    try:
        if not ours.poll(STARTED_WITHIN_S):
            raise TimeoutError(f"the agent did not start within {STARTED_WITHIN_S:g} s")
        yield Model(*ours.recv())
    finally:
        process.kill()
        process.join()


def _serve(told: Connection, folder: Path, latency_s: float) -> None:
    logging.disable(logging.CRITICAL)
    asyncio.run(_serving(told, folder, latency_s))


async def _serving(told: Connection, folder: Path, latency_s: float) -> None:
    async def chat(request: Request) -> JSONResponse:
        asked = json.loads(await request.body())
        if latency_s:
            await asyncio.sleep(latency_s)
        message = {"role": "assistant", "content": asked["messages"][-1]["content"]}
        return JSONResponse({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    settings = AgentSettings(adapters_dir=folder / "adapters")
    plain = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    async with (
        agent(settings, _Long(latency_s)) as (serves, _),
        serving(application("agent", serves.routers(), settings, serves.trouble)) as agent_url,
        serving(plain) as plain_url,
    ):
        told.send((agent_url, f"{plain_url}/v1"))
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Ended:
    """The runner's report of one rollout."""

    sample: int
    program: str
    status: str
    seconds: float
    says: str


@dataclass
class House:
    """`ended`: the rollouts of the last Work."""

    worker: RunnerWorker
    bus: MemoryBus
    ended: list[Ended] = field(default_factory=list)
    seconds: float = 0.0
    """The time of the last Work, from its delivery to its Response."""

    async def answer(self, task_id: str, samples: int, **given: Any) -> Response:
        asked = work(task_id, Sampling(n=samples, max_tokens=MOST_TOKENS), **given)
        self.ended.clear()
        began = time.perf_counter()
        await self.worker.handle(Delivery(work_queue(asked.agent_id), asked.encode(), Work.TYPE))
        self.seconds = time.perf_counter() - began
        return Response.decode(self.bus.deliveries_published(RESPONSES)[-1].body)


class _Ended(logging.Handler):
    def __init__(self, ended: list[Ended]) -> None:
        super().__init__()
        self._ended = ended

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", None) == "rollout-ended":
            about = record.__dict__["details"]
            says = record.getMessage().partition(": ")[2].partition(": ")[2]
            self._ended.append(Ended(about["sample"], about["program"], about["status"], about["seconds"], says))


@asynccontextmanager
async def runner(folder: Path, model: Model, programs: Mapping[str, Program], at_once: int) -> AsyncIterator[House]:
    settings = RunnerSettings.model_validate(
        {
            "runner_agents": {"small": (model.agent_url,)},
            "runner_tokenizer": save_tokenizer(folder / "tokenizer"),
            "runner_dir": folder / "runner",
            "workspace_cache": folder / "cache",
            "sandbox_runs_at_once": at_once,
        }
    )
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    house = House(RunnerWorker(settings, bus, Programs({"small": tuple(programs)}, programs)), bus)
    log, ended = logging.getLogger("runner"), _Ended(house.ended)
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(ended)
    try:
        await house.worker.start()
        yield house
    finally:
        log.removeHandler(ended)
        await house.worker.stop()
