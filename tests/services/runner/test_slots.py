"""Places by memory: no more at once than the memory holds, in turn, and one that asks for all of it runs alone."""

from __future__ import annotations

import asyncio

import pytest

from services.runner.slots import Needs, NoTurn, Slots, cpus_here, memory_here_mb
from tests.waiting import settled


async def hold(slots: Slots, needs_mb: int, running: list[int], end: asyncio.Event) -> None:
    async with slots.of(0, 60, asyncio.Event(), Needs(needs_mb)):
        running.append(needs_mb)
        await end.wait()
    running.remove(needs_mb)


async def test_rollouts_run_at_once_as_far_as_the_memory_goes() -> None:
    slots, running, ends = Slots(4, 1000), list[int](), [asyncio.Event() for _ in range(4)]
    held = [asyncio.create_task(hold(slots, mb, running, ends[n])) for n, mb in enumerate((600, 300, 5000, 50))]
    await settled()

    assert running == [600, 300], "what asks for more than there is holds up what came later, and runs alone"
    ends[0].set()
    ends[1].set()
    await settled()
    assert running == [5000]
    ends[2].set()
    await settled()
    assert running == [50]
    ends[3].set()
    await asyncio.gather(*held)
    assert not slots.waiting


async def test_who_gives_up_its_wait_lets_those_behind_it_go_on() -> None:
    slots, running, end, off = Slots(4, 1000), list[int](), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(hold(slots, 600, running, end))
    await settled()

    async def wait() -> None:
        async with slots.of(0, 60, off, Needs(900)):
            raise AssertionError("it was called off")

    large = asyncio.create_task(wait())
    await settled()
    small = asyncio.create_task(hold(slots, 100, running, end))
    await settled()
    assert running == [600]
    off.set()
    with pytest.raises(NoTurn):
        await large
    await settled()
    assert running == [600, 100]
    end.set()
    await asyncio.gather(first, small)


async def test_rollouts_that_ask_for_cores_run_at_once_as_far_as_those_go() -> None:
    slots, ends = Slots(9, 1000, 1.0), [asyncio.Event() for _ in range(6)]
    running = list[int]()

    async def run(number: int, cpus: float) -> None:
        async with slots.of(0, 60, asyncio.Event(), Needs(10, cpus)):
            running.append(number)
            await ends[number].wait()

    held = [asyncio.create_task(run(n, cpus)) for n, cpus in enumerate((0.1, 0.7, 0.2, 0.0, 8.0, 0.0))]
    await settled()
    assert running == [0, 1, 2, 3], "one that asks for no core takes none, and one for more than there are waits"
    for n in range(4):
        ends[n].set()
    await settled()
    assert running == [0, 1, 2, 3, 4, 5]
    ends[4].set()
    ends[5].set()
    await asyncio.gather(*held)


def test_this_machine_has_memory_and_cores() -> None:
    assert 64 < memory_here_mb() < 2**30
    assert 0 < cpus_here() < 10_000
