"""The agent as its own process: Work is published straight to its queue, Responses are read back."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import TracebackType

import httpx
import psutil

from bench.generation.workload import Rate, Workload, tokens
from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, work_queue
from schemas.messages.response import Response
from schemas.messages.task import Prompt
from schemas.messages.work import Arm, Sampling, Work
from services.agent.settings import AgentSettings
from services.cli.fleet.local_broker import free_port

READY_TIMEOUT_S = 300.0


@asynccontextmanager
async def agent_process(settings: AgentSettings, log: Path) -> AsyncIterator[psutil.Process]:
    """Runs while the block does; begins when /readyz says so. Its log goes to the file."""
    port = free_port()
    environment = os.environ | _environment(settings) | {"RATCHET_AGENT_HTTP_PORT": str(port)}
    with log.open("w") as output:
        command = (sys.executable, "-m", "services.agent")
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
    try:
        await _until_ready(port, process, log)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


def _environment(settings: AgentSettings) -> dict[str, str]:
    return {
        "RATCHET_AMQP_URL": settings.amqp_url.get_secret_value(),
        "RATCHET_NAMESPACE": settings.namespace,
        "RATCHET_AGENT_ENGINE": settings.agent_engine,
        "RATCHET_AGENT_MODEL": settings.agent_model,
        "RATCHET_AGENT_MAX_BATCH": str(settings.agent_max_batch),
        "RATCHET_AGENT_PREFETCH": str(settings.agent_prefetch),
        **({"RATCHET_AGENT_THREADS": str(settings.agent_threads)} if settings.agent_threads else {}),
    }


async def _until_ready(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        while time.monotonic() < deadline and process.returncode is None:
            try:
                if (await client.get("/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
    raise RuntimeError(f"the agent did not get ready: see {log}")


class Client:
    """Keeps some tasks on their way and counts the tokens that come back. `numbers`: an agent answers each once."""

    def __init__(self, settings: AgentSettings, agent: psutil.Process, numbers: Iterator[int] | None = None) -> None:
        self._settings = settings
        self._agent = agent
        self._bus = RabbitBus.from_settings(settings, name="bench")
        self._numbers = numbers or count()
        self._answered = asyncio.Semaphore(0)
        self._tokens = 0
        self._asked = 0
        self._full = asyncio.Event()
        self._enough = False
        self._users: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Client:
        await self._bus.start()
        await self._bus.consume(RESPONSES, self._count, prefetch=1000)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._bus.stop(5.0)

    async def _count(self, delivery: Delivery) -> None:
        response = Response.decode(delivery.body)
        if response.error:
            raise RuntimeError(response.error)
        self._tokens += tokens(response.samples)
        self._answered.release()

    async def rate(self, workload: Workload, in_flight: int, seconds: float) -> Rate:
        """So many users, each of whom asks anew when an answer came; measured once every queue is as full as it gets.

        They publish concurrently: one after the other, each waiting for its confirm, they would be what is measured.
        """
        self._asked, self._enough = 0, False
        self._full.clear()
        self._users = [asyncio.create_task(self._ask_on(workload)) for _ in range(in_flight)]
        await self._full.wait()
        begun, cpu, before = time.perf_counter(), self._cpu_s(), self._tokens
        await asyncio.sleep(seconds)
        rate = Rate(self._tokens - before, time.perf_counter() - begun, self._cpu_s() - cpu)
        self._enough = True
        await asyncio.gather(*self._users)
        return rate

    async def work_off(self, prompts: Sequence[Prompt], sampling: Sampling) -> Rate:
        """All asked at once, until the last is answered."""
        begun, cpu, before = time.perf_counter(), self._cpu_s(), self._tokens
        await asyncio.gather(*(self._ask(next(self._numbers), prompt, sampling) for prompt in prompts))
        for _ in prompts:
            await self._answered.acquire()
        return Rate(self._tokens - before, time.perf_counter() - begun, self._cpu_s() - cpu)

    async def _ask_on(self, workload: Workload) -> None:
        while not self._enough:
            await self._publish(workload)
            await self._answered.acquire()
            self._asked += 1
            if self._asked >= len(self._users):
                self._full.set()

    def _cpu_s(self) -> float:
        used = [process.cpu_times() for process in (self._agent, *self._agent.children())]
        return float(sum(one.user + one.system for one in used))

    async def _publish(self, workload: Workload) -> None:
        number = next(self._numbers)
        prompt = workload.prompts(number // workload.concurrency)[number % workload.concurrency]
        await self._ask(number, prompt, workload.sampling)

    async def _ask(self, number: int, prompt: Prompt, sampling: Sampling) -> None:
        now = datetime.now(UTC)
        work = Work(
            task_id=f"bench-{number}",
            input=prompt,
            agent_id=self._settings.agent_id,
            deadline=now + timedelta(hours=1),
            arm=Arm(sequence=number),
            sampling=sampling,
            admitted_at=now,
        )
        queue = work_queue(self._settings.agent_id)
        await self._bus.publish(queue, work.encode(), type=Work.TYPE, message_id=work.task_id)
