"""The books of the demo's users against the log: what was lost, what failed, what was logged twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ratchet.cli.demo.users import Books
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read_json
from ratchet.logs.rows import SampleRow


@dataclass(frozen=True, slots=True)
class Account:
    """`lost`: tasks without an answer, or with fewer samples in the log than were asked for."""

    asked: int
    lost: int
    failed: int
    logged_twice: int

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
