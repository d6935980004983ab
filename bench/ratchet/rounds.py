"""One round after the other, each kept when it is done: users ask, the fleet does the rest, the verifier looks.

A round is one training that the fleet asked for, and whatever it then does with what came out; or, where it does not
trust its judge and so decides nothing, as many tasks as HELD_TASKS. A command that was cut short goes on with the round
it was in, from what the fleet had on disk.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from bench.ratchet.book import BEFORE_ITS_VERDICT, HELD, Book, Round, outcome_of
from bench.ratchet.fleet import Fleet
from bench.ratchet.judge import SHIFT, Events, correction
from bench.ratchet.quality import GROUP
from bench.ratchet.tasks import Problem, training_problem
from bench.ratchet.verifier import Verifier
from ratchet.adapters.manifest import version_key
from ratchet.files.atomic_file import replace_file
from schemas.messages.base import Record
from schemas.messages.feedback import Feedback
from schemas.messages.result import Result
from schemas.messages.training import AdapterTrained
from schemas.messages.work import BASE_VERSION
from schemas.records.decision import Decision
from schemas.records.registry import AgentAdapters

HELD_TASKS = 400
MOST_TASKS = 20_000
MOVES = ("promote", "roll_back", "reject_version", "distrust", "trust", "conclude")


class Rounds:
    def __init__(self, fleet: Fleet, verifier: Verifier, book: Book, events: Events, seed: int) -> None:
        self._fleet = fleet
        self._verifier = verifier
        self._book = book
        self._events = events
        self._users = random.Random(f"users {seed} {time.time_ns()}")
        self._run = f"{time.time_ns():x}"
        self._asked = 0
        self._open: dict[str, Problem] = {}

    async def run(self, number: int) -> Round:
        began = time.monotonic()
        fleet, happens = self._fleet, self._events.of(number)
        fleet.judge.likes_length = "hack" in happens
        fleet.judge.shift = SHIFT if number >= self._events.drift else 0.0
        start = Start.load(fleet, self._book.folder / f"round-{number}.json")
        if start.adapters.distrusted and self._book.rounds[-1].outcome == HELD:
            happens.append("reanchored")
            if fleet.adapters.distrusted:
                fleet.reanchor()
        tasks = await fleet.ask(self._problem, lambda asked: self._over(asked, start), self._feedback_for(happens))
        done = self._round_of(number, happens, start, tasks, time.monotonic() - began)
        await asyncio.to_thread(self._verify, done)
        self._book.keep(done)
        return done

    def _problem(self) -> tuple[str, Problem]:
        self._asked += 1
        task_id, problem = f"{self._run}-{self._asked}", training_problem(self._users)
        self._open[task_id] = problem
        return task_id, problem

    def _feedback_for(self, happens: list[str]) -> Callable[[Result], list[Feedback]]:
        def feedback(result: Result) -> list[Feedback]:
            problem = self._open.pop(result.task_id, None)
            if "poison" in happens:
                return self._fleet.judge.forge_feedback(result.task_id)
            if "correct" in happens and problem is not None:
                return [correction(result.task_id, problem, result.response)]
            return []

        return feedback

    def _over(self, asked: int, start: Start) -> bool:
        """The version of this round has come to its end, or its training has ended without one."""
        now = self._fleet.adapters
        if asked >= MOST_TASKS or (now.distrusted and asked >= HELD_TASKS):
            return True
        if fresh := start.fresh(now):
            return all(now.versions[version].state not in BEFORE_ITS_VERDICT for version in fresh)
        return any(outcome.status != "trained" for outcome in start.new_outcomes(self._fleet))

    def _round_of(self, number: int, happens: list[str], start: Start, tasks: int, seconds: float) -> Round:
        now, samples = self._fleet.adapters, self._fleet.samples
        version = max(start.fresh(now), key=version_key, default=None)
        decisions = [
            one for one in decisions_of(self._fleet) if one.sequence > start.decided and one.move.kind in MOVES
        ]
        outcome = outcome_of(version, now, decisions)
        ended = [one.reason for one in start.new_outcomes(self._fleet) if one.reason]
        return Round(
            number=number,
            events=happens,
            version=None if outcome == HELD else version,
            outcome=outcome,
            reason=(ended or [one.reason for one in decisions] or [""])[-1],
            before=start.adapters.primary,
            primary=now.primary,
            tasks=tasks,
            samples_now=samples.samples or GROUP,
            samples_saved=samples.saved_samples,
            tokens_saved=round(samples.saved_tokens),
            seconds=round(seconds, 1),
            decisions=[[one.move.kind, getattr(one.move, "version", None) or "", one.reason] for one in decisions],
        )

    def _verify(self, done: Round) -> None:
        """v1.0.0, the primary, and what was tried in the round, as long as its folder is there."""
        for version in {BASE_VERSION, done.primary, done.version or done.primary}:
            folder = self._fleet.folder(version)
            if folder is not None or version == BASE_VERSION:
                self._verifier.quality(version, folder)


class Start(Record):
    """The state when the round began."""

    adapters: AgentAdapters
    runs: frozenset[str]
    decided: int

    @classmethod
    def load(cls, fleet: Fleet, path: Path) -> Start:
        """Read the state that a command cut short in this round noted; else note the present one."""
        if path.exists():
            return cls.model_validate_json(path.read_bytes())
        decided = max((one.sequence for one in decisions_of(fleet)), default=0)
        start = cls(adapters=fleet.adapters, runs=frozenset(fleet.ended_runs), decided=decided)
        replace_file(path, start.model_dump_json().encode())
        return start

    def fresh(self, now: AgentAdapters) -> set[str]:
        """Versions of this round: those that waited for a verdict when it began, and new ones."""
        waiting = {name for name, entry in self.adapters.versions.items() if entry.state in BEFORE_ITS_VERDICT}
        return waiting | (now.versions.keys() - self.adapters.versions.keys())

    def new_outcomes(self, fleet: Fleet) -> list[AdapterTrained]:
        return [outcome for run, outcome in fleet.ended_runs.items() if run not in self.runs]


def decisions_of(fleet: Fleet) -> list[Decision]:
    return [line.decision for line in fleet.store.ledger.read()]
