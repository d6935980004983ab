"""A runner with a real sandbox, an agent's HTTP behind it, and programs of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, fleet_topology, work_queue
from ratchet.http.server.application import application
from ratchet.programs.declared import Program, ProgramLimits, Programs
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
from workbench.sandbox import bubblewrap

ASK = """
import json, os, sys, urllib.error, urllib.request
def ask(text, **more):
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]} | more).encode()
    headers = {"Authorization": "Bearer " + more.pop("key", os.environ["OPENAI_API_KEY"])}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""
"""A helper of programs; with the echo engine the model repeats what it is asked."""


def python(code: str, **given: Any) -> Program:
    """Return a program of this code, which may call `ask`."""
    return Program(command=("python3", "-I", "-S", "/program/main.py"), data={"/program/main.py": ASK + code}, **given)


def limits(**given: Any) -> ProgramLimits:
    return ProgramLimits(**{"seconds": 60, "memory_mb": 256, "disk_mb": 8, "processes": 24} | given)


@dataclass
class House:
    worker: RunnerWorker
    bus: MemoryBus

    async def answered(self, work: Work) -> Response:
        """Handle a Work as if the broker had delivered it; return the Response."""
        await self.worker.handle(delivery(work))
        return Response.decode(self.bus.deliveries_published(RESPONSES)[-1].body)


def delivery(work: Work) -> Delivery:
    return Delivery(work_queue(work.agent_id), work.encode(), Work.TYPE)


MakeHouse = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from demos.toy.byte_tokenizer import byte_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer(8192).save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def make_house(tmp_path: Path, tokenizer: Path) -> MakeHouse:
    """A runner that has started, for an agent `small` with these programs."""
    assert bubblewrap.missing_programs() == [], "sh infra/setup-debian.sh installs it"

    @asynccontextmanager
    async def house(
        programs: Mapping[str, Program],
        engine: EchoEngine | None = None,
        of_fleet: MemoryBus | None = None,
        **given: Any,
    ) -> AsyncIterator[House]:
        bus = of_fleet or MemoryBus(fleet_topology(("small",), programs=True))
        if of_fleet is None:
            await bus.start()
        of_agent = AgentSettings(adapters_dir=tmp_path / "adapters")
        async with (
            agent(of_agent, engine or EchoEngine()) as (serves, _),
            serving(application("agent", serves.routers(), of_agent, serves.trouble)) as url,
        ):
            settings = RunnerSettings.model_validate(
                {
                    "runner_agents": {"small": (url,)},
                    "runner_tokenizer": str(tokenizer),
                    "runner_dir": tmp_path / "runner",
                    "workspace_cache": tmp_path / "workspaces",
                    "sandbox_runs_at_once": 8,
                }
                | given
            )
            worker = RunnerWorker(settings, bus, Programs({"small": tuple(programs)} if programs else {}, programs))
            try:
                await worker.start()
                yield House(worker, bus)
            finally:
                await worker.stop()

    return house


@pytest.fixture
def make_work() -> Callable[..., Work]:
    def make(task_id: str = "t-1", **given: Any) -> Work:
        return work(task_id, **({"sampling": Sampling(n=1, max_tokens=200)} | given))

    return make


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
