"""The agent as its own process: Work is published straight to its queue, Responses are read back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

import psutil

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, work_queue
from schemas.messages.response import Response, Sample
from schemas.messages.task import Prompt
from schemas.messages.work import Arm, Sampling, Work
from services.agent.settings import AgentSettings
from tests.acceptance.fleet import Member
from tests.private_broker import free_port

READY_TIMEOUT_S = 300.0


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


def count_tokens(samples: Sequence[Sample]) -> int:
    return sum(len(sample.completion_ids or ()) for sample in samples)


@asynccontextmanager
async def agent_process(settings: AgentSettings, log: Path) -> AsyncIterator[psutil.Process]:
    """Run an agent, ready within the block; its log goes to the file."""
    port = free_port()
    environment = _environment(settings) | {"RATCHET_AGENT_HTTP_PORT": str(port)}
    agent = Member("agent", "services.agent", port, environment, log)
    agent.start()
    try:
        await asyncio.to_thread(agent.wait_until_ready, READY_TIMEOUT_S)
        yield psutil.Process(agent.pid)
    finally:
        assert agent.process is not None
        agent.process.terminate()
        await asyncio.to_thread(agent.process.wait)


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


class Client:
    """Asks for tasks at once and counts the tokens that come back. `numbers`: of tasks; an agent answers each once."""

    def __init__(self, settings: AgentSettings, agent: psutil.Process, numbers: Iterator[int]) -> None:
        self._settings = settings
        self._agent = agent
        self._bus = RabbitBus.from_settings(settings, name="bench")
        self._numbers = numbers
        self._answered = asyncio.Semaphore(0)
        self._tokens = 0

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
        self._tokens += count_tokens(response.samples)
        self._answered.release()

    async def work_off(self, prompts: Sequence[Prompt], sampling: Sampling) -> Rate:
        """Ask all at once, and wait for the last answer."""
        begun, cpu, before = time.perf_counter(), self._cpu_s(), self._tokens
        await asyncio.gather(*(self._ask(next(self._numbers), prompt, sampling) for prompt in prompts))
        for _ in prompts:
            await self._answered.acquire()
        return Rate(self._tokens - before, time.perf_counter() - begun, self._cpu_s() - cpu)

    def _cpu_s(self) -> float:
        used = [process.cpu_times() for process in (self._agent, *self._agent.children())]
        return float(sum(one.user + one.system for one in used))

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
