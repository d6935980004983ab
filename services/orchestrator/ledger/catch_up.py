"""Bring the index of tasks up to the logs: what a kill cut off, or, for a new index, all of it.

Lines that can't be read go to `quarantine.jsonl` and are passed over, and so do assignments whose number or id another
line had before them; nothing is written to the logs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.logs.best_answer import result_of
from ratchet.logs.groups import Groups
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, file_name
from ratchet.logs.quarantine import BadLine, Quarantine
from ratchet.logs.reader import Line
from ratchet.logs.segments import Position
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.index import TaskIndex
from services.orchestrator.ledger.indexed_log import lines_before

log = Log("ledger")


@dataclass(slots=True)
class CaughtUp:
    """The findings of a run."""

    lines: int = 0
    torn: dict[str, Position] = field(default_factory=dict)
    """Tasks with only a part of their group in the log, and where that part begins."""
    torn_lines: dict[str, list[Interaction]] = field(default_factory=dict)
    """That part."""
    unanswered: dict[str, Position] = field(default_factory=dict)
    """Tasks that ended without an answer, and where their lines begin: their users may not have been told."""


class CatchUp:
    """Applying a line twice is the same as applying it once."""

    def __init__(self, folder: Path, index: TaskIndex, ends: Mapping[str, Position]) -> None:
        self._folder = folder
        self._index = index
        self._ends = ends
        self._quarantine = Quarantine(folder)
        self._groups = Groups[str, Interaction]()
        self._begins: dict[str, Position] = {}
        self._next_sequence = 0
        self._found = CaughtUp()

    def run(self) -> CaughtUp:
        """Read both logs from where the index is current to their ends.

        Answers to tasks whose assignments were removed from the logs stand alone: they are passed over.
        """
        self._next_sequence = self._index.next_sequence()
        for name in (ASSIGNMENTS, INTERACTIONS):
            start = self._index.position(name)
            for line in lines_before(self._folder, name, start, self._ends[name], self._quarantine):
                self._apply(name, line)
        for task_id, group in self._groups.rest():
            self._index.count_logged(task_id, len(group))
            self._found.torn[task_id] = self._begins[task_id]
            self._found.torn_lines[task_id] = group
        return self._found

    def _apply(self, name: str, line: Line) -> None:
        self._found.lines += 1
        try:
            if name == ASSIGNMENTS:
                self._admit(Work.decode(line.data), line)
            else:
                interaction = Interaction.decode(line.data)
                if interaction.arm.sequence >= self._index.forgotten_below:
                    self._collect(interaction, line.position)
        except DecodeError as error:
            self._quarantine(BadLine(file_name(name), line.position, error.reason, line.data))

    def _admit(self, work: Work, line: Line) -> None:
        known, sequence = self._index.find(work.task_id), work.arm.sequence
        if known is not None:
            if (known.sequence, known.line or line.position) != (sequence, line.position):
                self._pass_over(line, f"task {work.task_id} was admitted before, with the number {known.sequence}")
        elif sequence < self._next_sequence and (other := self._index.id_of(sequence)) is not None:
            self._pass_over(line, f"the number {sequence} was given before, to task {other}")
        else:
            self._next_sequence = max(self._next_sequence, sequence + 1)
            until = work.deadline.timestamp()
            self._index.admit(sequence, work.task_id, until, line.data, line.position, work.owner)

    def _pass_over(self, line: Line, reason: str) -> None:
        log.error("given-twice", f"{file_name(ASSIGNMENTS)} at byte {line.position:,} is passed over: {reason}")
        self._quarantine(BadLine(file_name(ASSIGNMENTS), line.position, reason, line.data))

    def _collect(self, line: Interaction, position: Position) -> None:
        task_id, sample = line.task_id, line.sample
        if sample is not None and sample > len(self._groups.begun_samples(task_id)):
            self._index.count_logged(task_id, sample + 1)
            return
        begin = position if sample is None else self._begins.setdefault(task_id, position)
        if sample is None:
            self._found.unanswered[task_id] = position
        if (group := self._groups.add(task_id, sample, line.group_size, line)) is not None:
            self._begins.pop(task_id, None)
            self._settle(group, begin, logged=0 if sample is None else len(group))
            if sample is not None:
                self._found.unanswered.pop(task_id, None)

    def _settle(self, lines: list[Interaction], position: Position, *, logged: int) -> None:
        result = result_of(lines)
        self._index.settle(result.task_id, logged=logged, result=result.encode(), lines=position, status=result.status)
