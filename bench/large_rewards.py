"""`python -m bench.large_rewards`: hundreds of Rewards of a megabyte at once, on a real broker and a real orchestrator.

All lie in `rewards` while the orchestrator is held (SIGSTOP), then it gets them together, as after an outage; small
tasks are asked meanwhile. Exit code 0 only if every task was answered and its memory stayed below the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import machine
from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESULTS, REWARDS, TASKS, fleet_topology, work_queue
from schemas import Response, Reward, Task
from schemas.messages.response import Sample
from schemas.messages.result import Result
from schemas.messages.reward import SampleScore
from schemas.messages.work import Work
from tests.acceptance.brokers import mortal_broker
from tests.acceptance.fleet import ORCHESTRATOR, Fleet

MOST_RSS = 1024**3
SMALL_EVERY_S = 0.25
SAMPLES = 64
LARGE, SMALL = "large", "small"


@dataclass
class Books:
    """`told`: tasks by kind and status. `small_s`: from a small task to its Result."""

    asked: dict[str, float] = field(default_factory=dict)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    small_s: list[float] = field(default_factory=list)
    at_work: int = 0

    def hear(self, result: Result) -> None:
        began = self.asked.pop(result.task_id, None)
        if began is None:
            return
        kind = result.task_id.partition("-")[0]
        self.told[kind, result.status] += 1
        if kind == SMALL:
            self.small_s.append(time.monotonic() - began)


def reward_of(work: Work, size: int) -> Reward:
    """Of about so many bytes, half of them in the answers; one small answer to a small task."""
    n = work.sampling.n
    text = "y" * max(1, (size - len(work.encode())) // n) if work.task_id.startswith(LARGE) else "y"
    samples = tuple(Sample(text=text) for _ in range(n))
    response = Response(task_id=work.task_id, response=text, agent_id="small", samples=samples, work=work)
    scores = tuple(SampleScore(score=0.5) for _ in samples)
    return Reward(task_id=work.task_id, score=0.5, scoring_agent_id="bench", scores=scores, scored=response)


class World:
    """Users, an agent and a scorer in one: large Rewards are held until they are let go."""

    def __init__(self, bus: RabbitBus, size: int, prompt: int) -> None:
        self.books = Books()
        self._bus = bus
        self._size = size
        self._prompt = prompt

    async def ask(self, kind: str, number: int) -> None:
        large = kind == LARGE
        task_id = f"{kind}-{number}"
        self.books.asked[task_id] = time.monotonic()
        task = Task(task_id=task_id, input="x" * (self._prompt if large else 9), samples=SAMPLES if large else 1)
        await self._bus.publish(TASKS, task.encode(), type=Task.TYPE, message_id=task_id)

    async def answer(self, delivery: Delivery) -> None:
        work = Work.decode(delivery.body)
        reward = reward_of(work, self._size)
        await self._bus.publish(REWARDS, reward.encode(), type=Reward.TYPE, message_id=work.task_id)
        self.books.at_work += work.task_id.startswith(LARGE)

    async def hear(self, delivery: Delivery) -> None:
        self.books.hear(Result.decode(delivery.body))


async def measured(fleet: Fleet, world: World, bus: RabbitBus, count: int, limit_s: float) -> int:
    """The largest RSS of the orchestrator, in bytes."""
    orchestrator = fleet[ORCHESTRATOR]
    for number in range(count):
        await world.ask(LARGE, number)
    await until(lambda: _taken(bus, count))
    os.kill(orchestrator.pid, signal.SIGSTOP)
    await bus.consume(work_queue("small"), world.answer, prefetch=32)
    await until(lambda: _answered(world, count))
    os.kill(orchestrator.pid, signal.SIGCONT)
    number = 0
    ends = time.monotonic() + limit_s
    while (any(one.startswith(LARGE) for one in world.books.asked) or number < 20) and time.monotonic() < ends:
        await world.ask(SMALL, number)
        number += 1
        await asyncio.sleep(SMALL_EVERY_S)
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, ends - time.monotonic())):
            await until(lambda: _told(world))
    return peak_rss(orchestrator.pid)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - a broker and another process have no event here
        await asyncio.sleep(0.05)


async def _taken(bus: RabbitBus, count: int) -> bool:
    return (await bus.state(work_queue("small"))).messages >= count


async def _answered(world: World, count: int) -> bool:
    return world.books.at_work >= count


async def _told(world: World) -> bool:
    return not world.books.asked


def peak_rss(pid: int) -> int:
    """Of a process, since its start, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel does not say how much memory process {pid} took")


async def run(folder: Path, url: str, given: argparse.Namespace) -> tuple[Books, int]:
    environment = {"RATCHET_DRAIN_GRACE_S": "2", "RATCHET_LOG_KEEP_GB": "1"}
    fleet = Fleet(folder, url, foreign_agents=("small",), foreign_scorer=True, environment=environment)
    fleet.start()
    bus = RabbitBus(url, fleet_topology(("small",), external_scorer=True), name="bench")
    await bus.start()
    try:
        world = World(bus, given.bytes, given.prompt)
        await bus.consume(RESULTS, world.hear, prefetch=256)
        peak = await measured(fleet, world, bus, given.rewards, given.limit_s)
        return world.books, peak
    finally:
        await bus.stop(1.0)
        fleet.kill()


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.large_rewards", description=__doc__)
    parser.add_argument("--rewards", type=int, default=512, help="at once (512)")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="of each, about (1,000,000)")
    parser.add_argument("--prompt", type=int, default=1_000, help="bytes of it that are the task's input (1000)")
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds until it is given up (600)")
    return parser.parse_args(arguments)


def main() -> int:
    given = options()
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ratchet-large-rewards-") as folder,
        mortal_broker(Path(folder) / "broker") as broker,
    ):
        books, peak = asyncio.run(run(Path(folder), broker.url, given))
    small = sorted(books.small_s) or [0.0]
    print(f"{machine()}; {time.monotonic() - began:.0f} s")
    print(f"{given.rewards} Rewards of {given.bytes:,} bytes with {SAMPLES} samples; told: {dict(books.told)}")
    print(f"the orchestrator's memory at its largest: {peak / 2**20:,.0f} MiB")
    print(f"small tasks meanwhile: {len(small)}, slowest {small[-1]:.1f} s, median {small[len(small) // 2]:.1f} s")
    if books.asked:
        print(f"{len(books.asked)} tasks were not answered: {sorted(books.asked)[:5]}")
    return 1 if books.asked or peak > MOST_RSS else 0


if __name__ == "__main__":
    sys.exit(main())
