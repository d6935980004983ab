"""Bring the index up to the logs: what a kill cut off, or, for a new index, all of it.

Lines that can't be read go to `quarantine.jsonl` and are passed over; nothing is written to the logs here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.logs.answers import result_of
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, file_name
from ratchet.logs.quarantine import BadLine, Quarantine
from ratchet.logs.reader import Line, read
from schemas.messages.base import DecodeError
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.index import TaskIndex


@dataclass(slots=True)
class CaughtUp:
    """What a run found."""

    lines: int = 0
    torn: dict[str, int] = field(default_factory=dict)
    """Tasks with only a part of their group in the log, and where that part begins."""
    torn_lines: dict[str, list[Interaction]] = field(default_factory=dict)
    """That part."""
    ended: dict[str, int] = field(default_factory=dict)
    """Tasks that ended without an answer, and where their lines begin: their users may not have been told."""


class CatchUp:
    """Applying a line twice is the same as applying it once."""

    def __init__(self, folder: Path, index: TaskIndex) -> None:
        self._folder = folder
        self._index = index
        self._quarantine = Quarantine(folder)
        self._groups: dict[str, list[Interaction]] = {}
        self._found = CaughtUp()

    def run(self) -> CaughtUp:
        """Reads both logs from where the index is current to their ends.

        Answers to tasks whose assignments were removed from the logs stand alone: they are passed over.
        """
        for line in self._lines(ASSIGNMENTS):
            self._apply(ASSIGNMENTS, line)
        for line in self._lines(INTERACTIONS):
            self._apply(INTERACTIONS, line)
        torn = {task_id: group for task_id, group in self._groups.items() if group}
        for task_id, group in torn.items():
            self._index.count_logged(task_id, len(group))
        self._found.torn = {task_id: self._found.torn[task_id] for task_id in torn}
        self._found.torn_lines = torn
        return self._found

    def _lines(self, name: str) -> Iterator[Line]:
        return read(self._folder, name, self._index.position(name), on_bad=self._quarantine)

    def _apply(self, name: str, line: Line) -> None:
        self._found.lines += 1
        try:
            if name == ASSIGNMENTS:
                self._admitted(Work.decode(line.data), line)
            else:
                interaction = Interaction.decode(line.data)
                if interaction.arm.sequence >= self._index.forgotten_below:
                    self._logged(interaction, line.position)
        except DecodeError as error:
            self._quarantine(BadLine(file_name(name), line.position, error.reason, line.data))

    def _admitted(self, work: Work, line: Line) -> None:
        self._index.open(work.arm.sequence, work.task_id, work.deadline.timestamp(), line.data, line.position)

    def _logged(self, line: Interaction, position: int) -> None:
        if line.sample is None:
            self._settle([line], position, logged=0)
            self._groups.pop(line.task_id, None)
            self._found.ended[line.task_id] = position
            return
        group = self._groups.setdefault(line.task_id, [])
        if line.sample != len(group):
            self._index.count_logged(line.task_id, line.sample + 1)
            return
        if not group:
            self._found.torn[line.task_id] = position
        group.append(line)
        if len(group) == line.group_size:
            self._settle(group, self._found.torn[line.task_id], logged=len(group))
            del self._groups[line.task_id]

    def _settle(self, lines: list[Interaction], position: int, *, logged: int) -> None:
        result = result_of(lines)
        self._index.settle(result.task_id, logged=logged, result=result.encode(), lines=position, status=result.status)
