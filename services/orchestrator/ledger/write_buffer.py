"""The tasks of the last moments, in memory: most are looked up once more and closed before they are written anywhere.

So the index writes a task that is closed quickly once instead of twice, and never its Work. What settling a task means
is written here, once (`BufferedTask.settle`). It knows no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_BYTES = 16 * 1024 * 1024
"""Of Works and Results: beyond it they are to be written down, and the oldest are no longer kept."""
OVERHEAD_BYTES = 400
"""What a task takes here besides its Work and its Result."""

New = tuple[int, str, float, int, bytes | None, bytes | None, int, int | None, int | None, str | None]
"""Sequence, task id, deadline, samples logged, Work, Result, line, lines, ended, owner: as in the table of tasks."""
Change = tuple[int, bytes | None, int | None, int | None, bytes | None, int]
"""Samples logged, Result, lines, ended, Work, sequence."""


@dataclass(slots=True)
class BufferedTask:
    """As in the table of tasks. `stored`: it has a row there, which may be older."""

    sequence: int
    task_id: str
    deadline: float
    work: bytes | None
    line: int
    logged: int = 0
    result: bytes | None = None
    lines: int | None = None
    ended: int | None = None
    owner: str | None = None
    stored: bool = False

    @property
    def size(self) -> int:
        """In bytes, about."""
        return OVERHEAD_BYTES + len(self.work or b"") + len(self.result or b"")

    def settle(self, logged: int, result: bytes, lines: int, ended: int) -> None:
        """The first Result stays, and only samples may come later; with samples logged its Work is no longer needed."""
        self.logged = max(self.logged, logged)
        self.result = self.result or result
        self.lines = lines
        self.ended = ended if self.ended is None else self.ended
        if logged:
            self.work = None


class WriteBuffer:
    """The tasks that are open, and those changed since `written`."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._tasks: dict[str, BufferedTask] = {}
        self._changed: dict[str, BufferedTask] = {}

    @property
    def too_many(self) -> bool:
        """It is time to write them down."""
        return self._bytes > self._most_bytes

    def find(self, task_id: str) -> BufferedTask | None:
        return self._tasks.get(task_id)

    def add(self, task: BufferedTask) -> None:
        """A new task, or one of the table that is about to change."""
        self._tasks[task.task_id] = task
        self._bytes += task.size
        if not task.stored:
            self._changed[task.task_id] = task

    def settle(self, task: BufferedTask, logged: int, result: bytes, lines: int, ended: int) -> None:
        """Of a task that is here: see BufferedTask.settle."""
        before = task.size
        task.settle(logged, result, lines, ended)
        self._note(task, before)

    def count_logged(self, task: BufferedTask, logged: int) -> None:
        task.logged = max(task.logged, logged)
        self._note(task, task.size)

    def forget_work(self, task: BufferedTask) -> None:
        before, task.work = task.size, None
        self._note(task, before)

    def unwritten(self) -> tuple[Sequence[New], Sequence[Change]]:
        """What the table does not have yet, in the order of assignment."""
        changed = self._changed.values()
        new: list[New] = [
            (
                one.sequence,
                one.task_id,
                one.deadline,
                one.logged,
                one.work,
                one.result,
                one.line,
                one.lines,
                one.ended,
                one.owner,
            )
            for one in changed
            if not one.stored
        ]
        changes: list[Change] = [
            (one.logged, one.result, one.lines, one.ended, one.work, one.sequence) for one in changed if one.stored
        ]
        return new, changes

    def written(self) -> None:
        """The table has it all now: the closed ones are forgotten here, and of the open ones the oldest."""
        for task in self._changed.values():
            task.stored = True
            if task.result is not None:
                self._forget(task)
        self._changed.clear()
        while self._bytes > self._most_bytes // 2:
            self._forget(next(iter(self._tasks.values())))

    def _note(self, task: BufferedTask, size_before: int) -> None:
        self._bytes += task.size - size_before
        self._changed[task.task_id] = task

    def _forget(self, task: BufferedTask) -> None:
        del self._tasks[task.task_id]
        self._bytes -= task.size
