"""The demo's users and their books: what they asked and were answered, held against the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from demos.held_out import MOST_OPEN
from ratchet.client import Fleet
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read_json
from ratchet.logs.rows import SampleRow
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetAccess

LOOK_EVERY_S = 0.25


@dataclass
class Books:
    """By task id: the samples asked for, and the Result's status."""

    asked: dict[str, int] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    by_version: Counter[str] = field(default_factory=Counter)
    """Tasks by the adapter version of their Result."""


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
        """Ask until it has happened, or so many are asked. Returns how many, all answered. Raises as `ask`."""
        return self.ask(self._until(happened, most, self._judging if judging else self._fresh))

    def ask(self, tasks: Iterable[Task], advance: Callable[[], None] = lambda: None) -> int:
        """Each is answered when this returns. Raises BusError, TimedOut."""
        before = len(self.books.asked)
        url, namespace = self._access.amqp_url, self._access.namespace
        with Fleet(url, namespace=namespace, most_open=self._most_open, stall_s=self._stall_s) as client:
            for result in client.batch(self._noted(tasks)):
                self.books.answered[result.task_id] = result.status
                self.books.by_version[result.adapter_version or ""] += 1
                advance()
        return len(self.books.asked) - before

    def _until(self, happened: Callable[[], bool], most: int, tasks: Iterator[Task]) -> Iterator[Task]:
        looked = float("-inf")
        for _ in range(most):
            if time.monotonic() - looked > LOOK_EVERY_S:
                if happened():
                    return
                looked = time.monotonic()
            yield next(tasks)

    def _noted(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            self.books.asked[task.task_id] = task.samples or 1
            yield task


@dataclass(frozen=True, slots=True)
class Account:
    """`lost`: tasks without an answer, or with fewer samples in the log than were asked for."""

    asked: int
    lost: int
    failed: int
    logged_twice: int

    def faults(self, dead_letters: int) -> Iterator[str]:
        """Sentences; none where nothing was lost, and no message became a dead letter."""
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
    """One pass over the log. Raises JournalError."""
    logged = Counter(
        (line.value.task_id, line.value.sample)
        for line in read_json(logs_dir, INTERACTIONS, SampleRow)
        if line.value.task_id in books.asked and line.value.sample is not None
    )
    samples = Counter(task_id for task_id, _ in logged)
    failed = {task for task, status in books.answered.items() if status != "ok"}
    missing = {task for task, wanted in books.asked.items() if samples[task] < wanted} - failed
    return Account(
        asked=len(books.asked),
        lost=len(missing | (books.asked.keys() - books.answered.keys())),
        failed=len(failed),
        logged_twice=sum(count - 1 for count in logged.values()),
    )
