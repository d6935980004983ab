"""kill -9 of whatever takes part in a rollout, at every step of its life and in between: then the books.

The recorder of a sandboxed program is a part of the runner, and dies with it; the one that is a process of its own is
bench.recorded's. A service halts itself at a step (RATCHET_FAILPOINT), is killed or goes on beside what is killed, and
comes back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.faults.steps import HOPS
from bench.rollouts.books import Books, books_of
from bench.rollouts.left_behind import files, groups, mounts, processes
from bench.rollouts.rig import Rig, rollouts, runner_folder
from ratchet.bus.amqp.short_connection import connected
from ratchet.bus.dead_letters.queue import DeadLetterQueue
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
LOOK_EVERY_S = 0.05
PER_S = 0.6
"""Tasks, about as many as are answered, so that there is work at every step."""
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
    """Go on with strikes that are drawn once each was met, until every task is answered."""


async def measure(broker: MortalBroker, folder: Path, plan: Plan) -> tuple[Books, Rig]:
    """All of it, once. `folder` is one that every user may pass."""
    began = time.monotonic()
    async with rollouts(broker, folder, plan.seed, samples=plan.samples, hurried=HURRIED) as rig:
        publishing = asyncio.create_task(rig.user.publish(plan.tasks, per_s=PER_S))
        for one in _order(plan, rig.draw):
            if publishing.done() and not rig.user.ledger.unanswered:
                break
            await strike(rig, one)
        await publishing
        log.info("%d strikes; %d of %d tasks are answered", rig.struck.total(), rig.answered, plan.tasks)
        await rig.user.wait_for_answers(REST_S)
        left = await rig.user.wait_until_at_rest(REST_S)
        rig.complaints += [f"{queue} holds {depth} messages" for queue, depth in left.items()]
        rig.complaints += [f"a dead letter: {reason}" for reason in _letters(broker.url, rig.fleet.namespace)]
        await asyncio.to_thread(rig.fleet.wait_until_ready)
        rig.complaints += [f"left beside a runner at rest: {one}" for one in _at_rest(rig)]
    books = books_of(rig.fleet.logs, rig.user.ledger, plan.samples)
    books.seconds = round(time.monotonic() - began, 1)
    killed = rig.struck[PROGRAM] + rig.struck[SANDBOX]
    if books.unfinished > killed:
        rig.complaints.append(f"{books.unfinished} rollouts that had time were not finished, of {killed} killed inside")
    rig.complaints += books.complaints
    rig.complaints += [f"crashed: {crash}" for crash in rig.supervisor.crashes]
    codes = rig.supervisor.exit_codes
    rig.complaints += [f"{name} stopped with exit code {code}" for name, code in codes.items() if code]
    if not codes:
        rig.complaints.append("the fleet did not stop in good order")
    return books, rig


def left_behind(rig: Rig, folder: Path, before: Collection[int] = ()) -> list[str]:
    """Once fleet and broker have ended; `before`: processes that ran before them."""
    return [
        *processes(before),
        *(f"process {pid}" for pid in marked(rig.mark)),
        *groups(rig.pids),
        *mounts(folder),
        *files(rig.temporary, runner_folder(rig)),
        *(f"half a tree: {path}" for path in (folder / "cache").glob("*.tmp")),
    ]


def _at_rest(rig: Rig) -> Iterator[str]:
    """Sandboxes, sockets and kept rollouts of a runner that has nothing to do."""
    for process in psutil.Process(rig.fleet[RUNNER].pid).children(recursive=True):
        yield f"process {process.pid}: {process.name()}"
    if sockets := sockets_elsewhere(rig.fleet[RUNNER].pid):
        yield f"sockets in networks of sandboxes: {sockets}"
    yield from files(runner_folder(rig))


def _letters(amqp_url: str, namespace: str) -> list[str]:
    with connected(amqp_url) as connection:
        return [f"{letter.queue}: {letter.reason}" for letter, _ in DeadLetterQueue(connection, namespace).letters()]


def _order(plan: Plan, draw: random.Random) -> Iterator[Strike]:
    yield from draw.sample(plan.strikes, len(plan.strikes))
    while plan.again:
        yield draw.choice(plan.strikes)


async def strike(rig: Rig, one: Strike) -> None:
    began, before = time.monotonic(), rig.answered
    if one.step is None:
        await asyncio.sleep(rig.draw.uniform(0.1, 3.0))
    elif not await _halted(rig, one):
        return
    if await _kill(rig, one):
        rig.struck[one.victim] += 1
        rig.struck[f"{one}"] += 1
    if one.service is not None:
        rig.supervisor.resume(rig.fleet[one.service])
    if one.victim == BROKER:
        await asyncio.sleep(rig.draw.uniform(0.0, 1.0))
        await asyncio.to_thread(rig.broker.start)
    if not await _went_on(rig, before):
        rig.complaints.append(f"{one}: nothing was answered for {PROGRESS_WITHIN_S:g} s after it")
    rig.note_pids()
    log.info("%s: %.1f s; %d answered", one, time.monotonic() - began, rig.answered)


async def _halted(rig: Rig, one: Strike) -> bool:
    """Complained of where the service does not come to the step though there is work."""
    assert one.service is not None and one.step is not None
    member = rig.fleet[one.service]
    await asyncio.to_thread(member.wait_until_ready, READY_WITHIN_S)
    rig.note_pids()
    rig.supervisor.arm(member, one.step)
    if await rig.supervisor.halted(member, HALT_WITHIN_S):
        return True
    if rig.user.ledger.unanswered and one.step not in ADMISSION:
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
    """A program that runs, or the bubblewrap that holds one. False where none runs."""
    try:
        inside = psutil.Process(rig.fleet[RUNNER].pid).children(recursive=True)
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


async def _went_on(rig: Rig, before: int) -> bool:
    """Whether a task is answered that was not; or all are."""
    until = time.monotonic() + PROGRESS_WITHIN_S
    while rig.answered == before and rig.user.ledger.unanswered:
        if time.monotonic() > until:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True
