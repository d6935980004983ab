"""Pools the evidence of several fleets: one fleet decides about adapters, the others follow (docs/scale.md).

The deciding fleet reads the logs of all, its own too, and writes what experiments count into one log. Every fleet reads
that log, so each has the same experiments: the same shares, and the same verdict at the same line. A kill loses
nothing: a line of the pooled log says how far the fleet's own log was read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.logged import audit_of, enrolment_of, outcome_of
from ratchet.experiments.records import PooledLine, position_of
from ratchet.logs.follower import FollowerNote, write_follower_note
from ratchet.logs.groups import Groups
from ratchet.logs.journal import Journal
from ratchet.logs.leadership import Fence
from ratchet.logs.names import ASSIGNMENTS, AUDITS, INTERACTIONS, POOLED, is_own, source
from ratchet.logs.reader import Line, LogReader, end_of_log, read_json
from ratchet.logs.rows import ArmedRow
from ratchet.logs.segments import Position
from ratchet.service.errors import JournalError, StorageUnavailable
from schemas.messages.base import DecodeError
from schemas.messages.work import Arm, Work
from schemas.records.audit import AuditedTask
from schemas.records.decision import RunningExperiment
from schemas.records.interaction import Interaction
from services.orchestrator.promotion.promoter import Promoter
from services.orchestrator.settings import OrchestratorSettings

Logged = TypeVar("Logged", Work, Interaction, AuditedTask)
WHOLE_KEPT = 10_000
"""Whole groups that are remembered: a kill has a line logged twice soon after, or never."""
TASK_LOGS = (ASSIGNMENTS, INTERACTIONS, AUDITS)


@contextmanager
def rewind_on_failure(readers: Collection[LogReader]) -> Iterator[None]:
    """Put all readers back to where they stood if the block fails, so that its lines are read again."""
    before = [(reader, reader.position) for reader in readers]
    try:
        yield
    except BaseException:
        for reader, position in before:
            reader.position = position
        raise


class FleetLogs:
    """The logs of one fleet, read on and on for what experiments count."""

    def __init__(self, fleet: int, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.readers: dict[str, LogReader] = {}
        self._groups = Groups[str, Interaction]()
        self._begun: dict[str, Position] = {}
        """The place of the first line of each task whose lines are not all there."""
        self._whole: dict[str, None] = {}
        """The newest tasks whose lines are all there, the oldest first."""
        self._peek = msgspec.json.Decoder(ArmedRow)

    def open(self, starts: Mapping[str, Position]) -> None:
        """Read from these positions on, and from the end of a log of which none is given. Blocks."""
        for log in TASK_LOGS:
            start = starts.get(source(self.fleet, log))
            self.readers[log] = LogReader(self.folder, log, end_of_log(self.folder, log) if start is None else start)

    @property
    def positions(self) -> dict[str, int]:
        return {source(self.fleet, log): reader.position for log, reader in self.readers.items()}

    def read(self) -> list[PooledLine]:
        """Return what is new. Blocks; raises JournalError or OSError, after which the same is new again.

        A task's assignment is logged before its end, and is read after it: no end comes without its assignment.
        """
        with rewind_on_failure(self.readers.values()):
            ends = list(self._lines(INTERACTIONS, Interaction))
            audits = list(self._lines(AUDITS, AuditedTask))
            works = list(self._lines(ASSIGNMENTS, Work))
        line_of = self._line_of
        found = [line_of(ASSIGNMENTS, line.end, one.arm, enrolment=enrolment_of(one)) for line, one in works]
        found += [line_of(AUDITS, line.end, one.arm, audit=audit_of(one)) for line, one in audits]
        for line, task in ends:
            if task.task_id in self._whole:  # logged twice: nothing more of it will come
                continue
            self._begun.setdefault(task.task_id, line.position)
            group = self._groups.add(task.task_id, task.sample, task.group_size, task)
            if group is not None:
                self._begun.pop(task.task_id)
                self._whole[task.task_id] = None
                if len(self._whole) > WHOLE_KEPT:
                    del self._whole[next(iter(self._whole))]
                end = min(self._begun.values(), default=line.end)
                found.append(line_of(INTERACTIONS, end, task.arm, outcome=outcome_of(group)))
        return found

    def _line_of(self, log: str, end: Position, arm: Arm, **told: Any) -> PooledLine:
        return PooledLine(str(arm.experiment_id), self.fleet, log, end, arm.sequence, **told)

    def _lines(self, log: str, type_: type[Logged]) -> Iterator[tuple[Line, Logged]]:
        """Yield the lines of experiments; the fleet's own tasks, such as golden ones, count in none."""
        for line in self.readers[log].lines():
            try:
                experiment_id = self._peek.decode(line.data).arm.experiment_id
                if experiment_id is not None and not is_own(experiment_id):
                    yield line, type_.decode(line.data)
            except (msgspec.DecodeError, DecodeError):
                continue


@dataclass(eq=False)
class EvidencePool:
    """The pooled log. Only the fleet that decides copies logs of fleets into it, its own too."""

    settings: OrchestratorSettings
    promoters: Mapping[str, Promoter]
    fence: Fence

    def __post_init__(self) -> None:
        settings = self.settings
        self._folder = settings.pool or settings.logs_dir
        folders = (settings.logs_dir, *settings.pooled_logs) if settings.pooled_logs else ()
        self._fleets = [FleetLogs(number, folder) for number, folder in enumerate(folders)]
        self._noted: FollowerNote | None = None
        self._journal: Journal | None = None
        self._reader = LogReader(self._folder, POOLED)
        self._unwritten: list[PooledLine] = []
        self._uncounted = deque[PooledLine]()
        self._ended = set[str]()
        """Experiments of which the registry knows nothing any more."""

    async def start(self) -> None:
        """Read up to where the experiments stand, once the promoters have read the registry. Raises JournalError."""
        running = [one for promoter in self.promoters.values() for one in promoter.arms.adapters.running]
        if self._fleets:
            self._journal = await asyncio.to_thread(self._open_journal)
        await asyncio.to_thread(self._open, running)
        await self.turn()

    def _open_journal(self) -> Journal:
        return Journal.open(self._folder, POOLED, max_segment_bytes=self.settings.segment_bytes, fence=self.fence)

    def _open(self, running: Sequence[RunningExperiment]) -> None:
        starts = [start for one in running if (start := position_of(one, POOLED)) is not None]
        begin = min(starts, default=end_of_log(self._folder, POOLED))
        self._reader = LogReader(self._folder, POOLED, begin)
        cursors = self._cursors(running, begin) if starts else {}
        for fleet in self._fleets:
            fleet.open(cursors)

    def _cursors(self, running: Iterable[RunningExperiment], begin: Position) -> dict[str, Position]:
        """Return how far each log was read: as the last pooled line of it says, else where the experiments began."""
        names = [source(fleet.fleet, log) for fleet in self._fleets for log in TASK_LOGS]
        began = {name: [p for one in running if (p := position_of(one, name)) is not None] for name in names}
        cursors = {name: min(positions) for name, positions in began.items() if positions}
        for record in read_json(self._folder, POOLED, PooledLine, begin):
            name = source(record.value.fleet, record.value.log)
            cursors[name] = max(cursors.get(name, 0), record.value.end)
        return cursors

    @property
    def positions(self) -> dict[str, int]:
        """Ends of the logs as of now, for an experiment that begins."""
        if self._journal is None:
            return {}
        found = {name: position for fleet in self._fleets for name, position in fleet.positions.items()}
        return found | {POOLED: self._journal.end}

    async def turn(self) -> None:
        """Pool what is new in the fleets' logs, and have the experiments count it.

        Raises JournalError, OSError or RegistryError; the next turn goes on where this one failed.
        """
        for fleet in self._fleets:
            try:
                self._unwritten += await asyncio.to_thread(fleet.read)
            except StorageUnavailable:
                raise
            except JournalError as error:  # a part of it is gone, or was taken back by a disk that was full
                for promoter in self.promoters.values():
                    await promoter.abort(f"the logs of fleet {fleet.fleet} can't be read on: {error}")
                await asyncio.to_thread(fleet.open, {})
        if self._journal is not None and self._unwritten:
            await self._journal.append([self._journal.stamp(line.encode()) for line in self._unwritten])
            self._unwritten.clear()
        self._uncounted += await asyncio.to_thread(self._read_pooled)
        while self._uncounted:
            await self._count(self._uncounted[0])
            self._uncounted.popleft()  # not before: what could not be counted is counted in the next turn

    def _read_pooled(self) -> list[PooledLine]:
        with rewind_on_failure([self._reader]):
            return [record.value for record in self._reader.records(PooledLine)]

    async def note_adapters_in_use(self) -> None:
        """Tell the fleet that decides what this one still uses. Raises JournalError, DiskFull."""
        in_use = {agent_id: promoter.in_use for agent_id, promoter in self.promoters.items()}
        note = FollowerNote(self.settings.fleet_number, in_use)
        if note != self._noted:
            await asyncio.to_thread(write_follower_note, self.settings.logs_dir, note)
            self._noted = note

    async def _count(self, line: PooledLine) -> None:
        """The registry knows an experiment before its first unit is drawn; who does not know it reads it again."""
        if line.experiment_id in self._ended:
            return
        experiment = self._find(line.experiment_id)
        if experiment is None:
            for promoter in self.promoters.values():
                await promoter.read_registry()
            experiment = self._find(line.experiment_id)
        if experiment is None:
            self._ended.add(line.experiment_id)
        else:
            line.count_in(experiment)

    def _find(self, experiment_id: str) -> Experiment | None:
        trials = (trial for promoter in self.promoters.values() for trial in promoter.arms.trials)
        return next((experiment for running, experiment in trials if running.experiment_id == experiment_id), None)

    async def close(self) -> None:
        if self._journal is not None:
            await self._journal.close()
