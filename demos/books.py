"""The demo's users and their books: what they asked and were answered, held against the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import DEAD_LETTERS
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import end_of_log, read_json
from ratchet.logs.rows import AnswerRow, SampleRow
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import BIG_AGENT
from services.cli.fleet.readiness import queue_depths

Q = TypeVar("Q")
LOOK_EVERY_S = 0.25
MOST_OPEN = 32
"""Tasks in flight: enough to fill the agent's batches, so few that waiting does not drown the other latencies."""


@dataclass
class Books:
    """The tasks by id: the samples asked for, and the Result's status."""

    asked: dict[str, int] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    by_version: Counter[str] = field(default_factory=Counter)
    """Tasks by the adapter version of their Result."""
    by_big: int = 0
    """Tasks that a big model answered in the agent's place: its group has a version that the Result does not name."""

    def ask(
        self,
        access: FleetAccess,
        tasks: Iterable[Task],
        *,
        stall_s: float,
        most_open: int = MOST_OPEN,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        """Have each answered, and advance at each answer. Raises BusError, TimedOut."""
        with access.client(most_open=most_open, stall_s=stall_s) as client:
            for result in client.batch(self._note(tasks)):
                self.answered[result.task_id] = result.status
                if result.agent_id == BIG_AGENT:
                    self.by_big += 1
                else:
                    self.by_version[result.adapter_version or ""] += 1
                advance()

    def _note(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            self.asked[task.task_id] = task.samples or 1
            yield task


class Users:
    """`fresh` never ends. A stall of `stall_s` seconds without any answer is an error.

    `judging`: what they ask instead while a candidate is tried; the same if not given.
    """

    def __init__(
        self,
        access: FleetAccess,
        fresh: Iterator[Task],
        *,
        stall_s: float,
        judging: Iterator[Task] | None = None,
        most_open: int = MOST_OPEN,
    ) -> None:
        self.books = Books()
        self._access = access
        self._fresh = fresh
        self._judging = judging or fresh
        self._stall_s = stall_s
        self._most_open = most_open

    def ask_until(self, happened: Callable[[], bool], *, most: int, judging: bool = False) -> int:
        """Ask until it has happened, or so many are asked. Return how many, all answered. Raises as `Books.ask`."""
        before = len(self.books.asked)
        tasks = self._until(happened, most, self._judging if judging else self._fresh)
        self.books.ask(self._access, tasks, stall_s=self._stall_s, most_open=self._most_open)
        return len(self.books.asked) - before

    def _until(self, happened: Callable[[], bool], most: int, tasks: Iterator[Task]) -> Iterator[Task]:
        looked = float("-inf")
        for _ in range(most):
            if time.monotonic() - looked > LOOK_EVERY_S:
                if happened():
                    return
                looked = time.monotonic()
            yield next(tasks)


@dataclass(frozen=True, slots=True)
class Account:
    """`lost`: tasks without an answer, or with fewer samples in the log than were asked for."""

    asked: int
    lost: int
    failed: int
    logged_twice: int

    def faults(self, dead_letters: int) -> Iterator[str]:
        """Yield sentences; none where nothing was lost, and no message became a dead letter."""
        if self.lost or self.failed or self.logged_twice:
            yield (
                f"of {self.asked} tasks {self.lost} were lost, {self.failed} failed, and {self.logged_twice} samples "
                "were logged twice"
            )
        if dead_letters:
            yield f"{dead_letters} dead letters: ratchet dead-letters list"

    def __add__(self, other: Account) -> Account:
        return Account(
            self.asked + other.asked,
            self.lost + other.lost,
            self.failed + other.failed,
            self.logged_twice + other.logged_twice,
        )


def account(books: Books, logs_dir: Path) -> Account:
    """Hold the books against the log, in one pass. Raises JournalError."""
    rows = (line.value for line in read_json(logs_dir, INTERACTIONS, SampleRow))
    logged = Counter((row.task_id, row.sample) for row in rows if row.task_id in books.asked and row.sample is not None)
    samples = Counter(task_id for task_id, _ in logged)
    failed = {task for task, status in books.answered.items() if status != "ok"}
    missing = {task for task, wanted in books.asked.items() if samples[task] < wanted} - failed
    return Account(
        asked=len(books.asked),
        lost=len(missing | (books.asked.keys() - books.answered.keys())),
        failed=len(failed),
        logged_twice=sum(count - 1 for count in logged.values()),
    )


@dataclass(frozen=True, slots=True)
class Measured(Generic[Q]):
    """The answers to questions, by task id: the Results' status, and the log's lines of them."""

    tasks: Mapping[str, Q]
    answered: Mapping[str, str]
    rows: Sequence[AnswerRow]

    def samples(self) -> Iterator[tuple[Q, AnswerRow]]:
        return ((self.tasks[row.task_id], row) for row in self.rows if row.sample is not None)

    @property
    def account(self) -> Account:
        samples = [(row.task_id, row.sample) for row in self.rows if row.sample is not None]
        failed = sum(status != "ok" for status in self.answered.values())
        lost = len(self.tasks) - len(self.answered)
        return Account(len(self.tasks), lost, failed, len(samples) - len(set(samples)))


def measure(
    access: FleetAccess,
    tasks: Mapping[str, Q],
    messages: Iterable[Task],
    stall_s: float,
    advance: Callable[[], None] = lambda: None,
) -> Measured[Q]:
    """Ask the `messages` of these tasks and read what the log has of them. Raises BusError, TimedOut, JournalError."""
    start, books = end_of_log(access.logs_dir, INTERACTIONS), Books()
    books.ask(access, messages, stall_s=stall_s, advance=advance)
    logged = (record.value for record in read_json(access.logs_dir, INTERACTIONS, AnswerRow, start))
    return Measured(tasks, books.answered, [row for row in logged if row.task_id in tasks])


def dead_letters(access: FleetAccess) -> int:
    """Return how many messages lie in the queue of dead letters. Raises BusError."""
    with open_connection(access.amqp_url) as connection:
        depths = queue_depths(connection, access.topology, access.namespace)
    return sum(depth.messages or 0 for depth in depths if depth.name == DEAD_LETTERS)
