"""kill -9 of whatever takes part in a rollout, at every step of its life and in between: then the books.

The recorder of a sandboxed program is a part of the runner, and dies with it; the one that is a process of its own is
bench.recorded's. A service halts itself at a step (RATCHET_FAILPOINT), is killed or goes on beside what is killed, and
comes back.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.faults.steps import HOPS
from bench.long_run import EarlyEnd, Pace
from bench.rollouts.books import Books, books_of
from bench.rollouts.left_behind import dead_letters, files, groups, mounts, processes
from bench.rollouts.rig import LOOK_EVERY_S, Rig, rollouts, runner_folder
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, RUNNER, SCORER
from tests.processes import marked, sockets_elsewhere

log = logging.getLogger(__name__)

BROKER, PROGRAM, SANDBOX = "broker", "program", "sandbox"
RUNNER_STEPS = (
    *("received", "rollout-begun", "call-sampled", "rollout-ended", "rollout-kept"),
    *("worked", "published", "confirmed", "before-ack"),
)
ADMISSION = ("admitted", "written", "fsynced")
SETTLEMENT = ("settled", "telling", "confirmed", "before-ack")
HALT_WITHIN_S = 60.0
READY_WITHIN_S = 90.0
PROGRESS_WITHIN_S = 90.0
REST_S = 900.0
HURRIED = 0.05
"""Share of the tasks that have but seconds, so that some rollouts are lost and some tasks expire."""


@dataclass(frozen=True)
class Strike:
    """`service` halts at `step`, then `victim` is killed. Without a step: at a moment that is drawn."""

    victim: str
    service: str | None = None
    step: str | None = None

    def __str__(self) -> str:
        if self.step is None:
            return f"{self.victim} at any moment"
        return f"{self.victim} at {self.service} {self.step}"


STRIKES = (
    *(Strike(RUNNER, RUNNER, step) for step in RUNNER_STEPS),
    *(Strike(AGENT, RUNNER, step) for step in RUNNER_STEPS[:5]),
    *(Strike(BROKER, RUNNER, step) for step in ("received", "call-sampled", "rollout-kept", "published", "confirmed")),
    *(Strike(SCORER, SCORER, step) for step in HOPS),
    Strike(BROKER, SCORER, "published"),
    *(Strike(ORCHESTRATOR, ORCHESTRATOR, step) for step in (*ADMISSION[:1], *SETTLEMENT)),
    Strike(BROKER, ORCHESTRATOR, "settled"),
    *(Strike(PROGRAM, RUNNER, step) for step in ("rollout-begun", "call-sampled")),
    *(Strike(SANDBOX, RUNNER, step) for step in ("rollout-begun", "call-sampled")),
    *(Strike(victim) for victim in (RUNNER, AGENT, SCORER, ORCHESTRATOR, BROKER, PROGRAM, SANDBOX)),
)


@dataclass(frozen=True)
class Plan:
    tasks: int
    samples: int
    seed: int
    strikes: tuple[Strike, ...] = STRIKES
    again: bool = True
    """Go on with strikes that are drawn, those first that met nothing, until every task is answered."""


async def measure(
    broker: MortalBroker, folder: Path, plan: Plan, end: EarlyEnd | None = None
) -> tuple[Books, Rig, Pace]:
    """Run the whole plan once. `folder` is one that every user may pass."""
    end, pace, began = end or EarlyEnd(), Pace(plan.tasks), time.monotonic()
    async with rollouts(broker, folder, plan.seed, samples=plan.samples, hurried=HURRIED) as rig:
        publishing = asyncio.create_task(rig.publish(plan.tasks, end))
        await strike_until_over(plan, rig, pace, end)
        await publishing
        log.info("%d kills; %s", rig.kills, pace.describe(rig.answered))
        await settle(rig)
    books = books_of(rig.fleet.logs, rig.user.ledger, plan.samples)
    books.seconds = round(time.monotonic() - began, 1)
    killed = rig.struck[PROGRAM] + rig.struck[SANDBOX]
    if plan.again and not end.asked:
        rig.complaints += [f"never met: {one}" for one in plan.strikes if not rig.struck[str(one)]]
    if books.failed > rig.struck[PROGRAM]:
        programs = rig.struck[PROGRAM]
        rig.complaints.append(f"{books.failed} rollouts are taken for failed, of {programs} programs that were killed")
    if books.unfinished > killed:
        rig.complaints.append(f"{books.unfinished} rollouts that had time were not finished, of {killed} killed inside")
    rig.complaints += books.complaints
    rig.complaints += rig.supervisor.complaints()
    return books, rig, pace


async def strike_until_over(
    plan: Plan, rig: Rig, pace: Pace, end: EarlyEnd, before_each: Callable[[int], None] = lambda number: None
) -> None:
    """Strike until all is answered, the plan is done, or the end is asked for."""
    for number, one in enumerate(in_order(plan, rig), 1):
        if rig.is_over or end.asked:
            return
        before_each(number)
        took_s = await strike(rig, one)
        log.info("%s: %.1f s; %s", one, took_s, pace.describe(rig.answered))


async def settle(rig: Rig) -> None:
    """Wait until all is answered and at rest, and note what is left."""
    await rig.user.wait_for_answers(REST_S)
    left = await rig.user.wait_until_at_rest(REST_S)
    rig.complaints += [f"{queue} holds {depth} messages" for queue, depth in left.items()]
    rig.complaints += [f"a dead letter: {one}" for one in dead_letters(rig.broker.url, rig.fleet.namespace)]
    await asyncio.to_thread(rig.fleet.wait_until_ready)
    rig.complaints += [f"left beside a runner at rest: {one}" for one in _at_rest(rig)]


def left_behind(rig: Rig, folder: Path, before: Collection[int] = ()) -> list[str]:
    """List what is left once fleet and broker have ended. `before`: processes that ran before them."""
    return [
        *processes(before),
        *(f"process {pid}" for pid in marked(rig.mark)),
        *groups(rig.pids),
        *mounts(folder),
        *files(rig.temporary, runner_folder(rig)),
        *(f"half a tree: {path}" for path in (folder / "cache").glob("*.tmp")),
    ]


def _at_rest(rig: Rig) -> Iterator[str]:
    """Yield sandboxes, sockets and kept rollouts of a runner that has nothing to do."""
    for process in psutil.Process(rig.fleet[RUNNER].pid).children(recursive=True):
        yield f"process {process.pid}: {process.name()}"
    if sockets := sockets_elsewhere(rig.fleet[RUNNER].pid):
        yield f"sockets in networks of sandboxes: {sockets}"
    yield from files(runner_folder(rig))


def in_order(plan: Plan, rig: Rig) -> Iterator[Strike]:
    yield from rig.draw.sample(plan.strikes, len(plan.strikes))
    while plan.again:
        possible = [one for one in plan.strikes if not (rig.published and one.step in ADMISSION)]
        missed = [one for one in possible if not rig.struck[str(one)]]
        yield rig.draw.choice(missed or possible)


async def strike(rig: Rig, one: Strike) -> float:
    """Strike; return the seconds from before it until a task is answered after it."""
    began, before = time.monotonic(), rig.answered
    if one.step is None:
        await asyncio.sleep(rig.draw.uniform(0.1, 3.0))
    elif not await _halt(rig, one):
        return time.monotonic() - began
    if await _kill(rig, one):
        rig.struck[one.victim] += 1
        rig.struck[f"{one}"] += 1
    if one.service is not None:
        rig.supervisor.resume(rig.fleet[one.service])
    if one.victim == BROKER:
        await asyncio.sleep(rig.draw.uniform(0.0, 1.0))
        await asyncio.to_thread(rig.broker.start)
    if not await _makes_progress(rig, before):
        rig.complaints.append(f"{one}: nothing was answered for {PROGRESS_WITHIN_S:g} s after it")
    rig.note_pids()
    return time.monotonic() - began


async def _halt(rig: Rig, one: Strike) -> bool:
    """Halt the service at the step. Complain if it does not come there though there is work: the last tasks are too few
    for some steps."""
    assert one.service is not None and one.step is not None
    member = rig.fleet[one.service]
    if not await rig.supervisor.ready(member, READY_WITHIN_S):
        rig.complaints.append(f"{one}: {one.service} was not ready within {READY_WITHIN_S:g} s")
        return False
    rig.note_pids()
    rig.supervisor.arm(member, one.step)
    if await rig.supervisor.halts(member, HALT_WITHIN_S, given_up=lambda: rig.is_over):
        return True
    if not rig.published:
        rig.complaints.append(f"{one}: {one.service} did not come there in {HALT_WITHIN_S:g} s")
    return False


async def _kill(rig: Rig, one: Strike) -> bool:
    if one.victim == BROKER:
        await asyncio.to_thread(rig.broker.kill)
        return True
    if one.victim in (PROGRAM, SANDBOX):
        return _kill_inside(rig, one.victim)
    rig.supervisor.kill(rig.fleet[one.victim])
    return True


def _kill_inside(rig: Rig, what: str) -> bool:
    """Kill a program that runs, or the bubblewrap that the runner started for one. False where none runs."""
    try:
        inside = psutil.Process(rig.fleet[RUNNER].pid).children(recursive=what == PROGRAM)
        found = [process for process in inside if _is(what, process, rig.mark)]
        if found:
            rig.draw.choice(found).send_signal(signal.SIGKILL)
    except psutil.Error:
        return False
    return bool(found)


def _is(what: str, process: psutil.Process, mark: str) -> bool:
    try:
        command = process.cmdline()
    except psutil.Error:
        return False
    if what == SANDBOX:
        return bool(command) and command[0].endswith("bwrap") and mark in command
    return command[:1] == ["python3"] and mark in command


async def _makes_progress(rig: Rig, before: int) -> bool:
    """Tell whether another task is answered in time, or all are."""
    until = time.monotonic() + PROGRESS_WITHIN_S
    while rig.answered == before and not rig.is_over:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True
