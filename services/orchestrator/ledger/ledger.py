"""All the orchestrator knows of its tasks: two logs, a third of what is promised to users, and the index over them.

What a caller has in the log is never lost by the index: nothing of it is said here before it is in both, or the index
has been caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Unpack

import msgspec

from ratchet.files.append_file import check_writable
from ratchet.files.atomic_file import unlink_database
from ratchet.logs.best_answer import result_of
from ratchet.logs.index_check import disagreement
from ratchet.logs.journal import Journal
from ratchet.logs.names import (
    ASSIGNMENTS,
    INTERACTIONS,
    PROMISES,
    TASK_INDEX,
    TASK_LOGS,
    active_path,
    task_index,
    task_indexes,
)
from ratchet.logs.reader import active_tail, read, read_json, tail_position
from ratchet.logs.retention.contents import remove_before
from ratchet.logs.segments import Position, oldest_position, read_start_offsets, sealed_segments
from ratchet.logs.source import has_place
from ratchet.logs.trajectories import TrajectoryFolder, taken_out
from ratchet.service.errors import JournalError
from schemas.messages.base import DecodeError
from schemas.messages.result import Result
from schemas.messages.reward import Reward
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.catch_up import CatchUp
from services.orchestrator.ledger.index import Entry, Promise, TaskIndex, copy_index, read_what_no_log_has
from services.orchestrator.ledger.indexed_log import GATHER_S, IndexedLog, IndexUnusable, LogSettings, log
from services.orchestrator.ledger.logged_task import logged_lines, logged_work

SET_ASIDE = f"{TASK_INDEX}.broken"
"""An index that an orchestrator before 0.2 did not believe any more: it may hold promises that no log has."""
KEPT_WORKS, KEPT_WORK_BYTES = 1_024, 8_192
"""Works of the newest tasks, those up to so many bytes, that need not be decoded when their answers come."""
PROMISE_SEGMENT_BYTES = 16 * 1024 * 1024
PROMISES_AT_ONCE = 1000


class Ledger(IndexedLog[TaskIndex]):
    """The only writer of a logs folder: whoever opens one leads it (ratchet/logs/leadership.py)."""

    def __init__(self, folder: Path, **given: Unpack[LogSettings]) -> None:
        super().__init__(folder, (*TASK_LOGS, PROMISES), TASK_INDEX, **given)
        self._trajectories = TrajectoryFolder(folder, self._fence)
        self.sequence = 0
        """The number the next task will get."""
        self.first_sequence = 0
        """The number the first task after this start got, or will get."""
        self._sealed_up_to = 0
        self._is_open = False
        self._works: dict[str, Work] = {}
        self._unlogged: list[Promise] = []
        """Those that are in the index, and on their way into the log."""
        self._notes: dict[str, bytes] = {}
        self.unanswered: list[str] = []
        """Tasks for which no Reward comes again and whose users may not have been told, as was found at `open`."""
        self._torn: dict[str, list[Interaction]] = {}
        self._held: dict[str, Position] = {}
        """Tasks whose lines the next start must read again, and where those begin."""

    async def open(self) -> None:
        await super().open()
        await self._log_promises_of_before()
        self._is_open = True

    def find(self, task_id: str) -> Entry | None:
        """Raises StorageUnavailable while it can't be used."""
        return self.index.find(task_id)

    async def work_of(self, known: Entry) -> Work:
        """Return the Work as it was admitted. Raises JournalError where the log does not hold it any more."""
        if known.work is not None:
            return self._works.pop(known.task_id, None) or Work.decode(known.work)
        return await asyncio.to_thread(logged_work, self.folder, known)

    async def lines_of(self, known: Entry) -> list[Interaction]:
        """Return the lines of a closed task. Raises JournalError."""
        return await asyncio.to_thread(logged_lines, self.folder, known)

    async def logged_task(self, task_id: str) -> tuple[Work, list[Interaction]] | None:
        """Return a closed task as it was admitted and answered; None where the logs have it no more.

        Raises JournalError.
        """
        known = self.find(task_id)
        return None if known is None or known.lines is None else (await self.work_of(known), await self.lines_of(known))

    def oldest_open_s(self, now: datetime) -> float:
        """Return the age of the oldest open task in seconds; 0 where none is open."""
        oldest = self.index.oldest_open_work()
        return max(0.0, (now - Work.decode(oldest).admitted_at).total_seconds()) if oldest else 0.0

    def has_forgotten(self, task_id: str) -> bool:
        """True for a task that was answered, but of which the logs were removed to keep the disk within its bound."""
        return self.index.is_forgotten(task_id)

    @property
    def epoch(self) -> int | None:
        """Stands in every line that is logged here."""
        return self._fence.epoch

    def positions(self) -> dict[str, Position]:
        """The ends of the logs of tasks: nothing admitted from here on lies before."""
        return {name: self._journals[name].end for name in TASK_LOGS}

    def has_place(self, log: str, position: Position) -> bool:
        """False for a position of another log than the one that is there now. Raises StorageUnavailable."""
        return has_place(self.folder, log, position)

    def next_sequence(self) -> int:
        """The next number in assignment order; each is given once."""
        self.sequence += 1
        return self.sequence - 1

    async def admit(self, work: Work) -> bytes:
        """Write the assignment ahead. Returns the Work as logged, once it is on disk. Raises JournalError."""
        body = self._journals[ASSIGNMENTS].stamp(work.encode())

        def apply(position: Position) -> None:
            until = work.deadline.timestamp()
            self._index.admit(work.arm.sequence, work.task_id, until, body, position, work.owner)

        await self._append(ASSIGNMENTS, [body], apply)
        if len(body) <= KEPT_WORK_BYTES:
            self._works[work.task_id] = work
            if len(self._works) > KEPT_WORKS:
                del self._works[next(iter(self._works))]
        return body

    async def settle(self, lines: Sequence[Interaction], *, logged: int = 0) -> tuple[Result, bytes]:
        """Log a task's lines from the `logged`-th on and close it; what is too long for a line goes before it.

        Returns its Result, and that as JSON, once all are on disk, whatever becomes of the index. Raises JournalError:
        then nothing is. Call `mark_result_sent` once the user has it: where no Reward comes again to have a lost Result
        repeated (the task ended without an answer, or by a Reward that was kept), the next start does.
        """
        journal = self._journals[INTERACTIONS]
        rows, long = _split_trajectories(lines[logged:])
        samples = 0 if lines[0].sample is None else len(lines)
        result = result_of(lines)
        body = result.encode()

        def apply(position: Position) -> None:
            held = self._held.pop(result.task_id, position)
            self._torn.pop(result.task_id, None)
            if not samples or self._index.is_kept(result.task_id):
                self._held[result.task_id] = position
            begin = held if logged else position
            self._index.settle(result.task_id, logged=samples, result=body, lines=begin, status=result.status)

        before = journal.end
        if long:
            await asyncio.to_thread(self._trajectories.write, long, before)
        await self._append(INTERACTIONS, [journal.stamp(row.encode()) for row in rows], apply)
        if long:
            await asyncio.to_thread(self._trajectories.mark_logged, long.keys(), before)
        return result, body

    async def add_waiter(self, task_id: str, reply_to: str, correlation_id: str | None) -> None:
        """One more queue that wants the Result of an open task; on disk when this returns. Raises JournalError."""
        await self._log_promise(Promise(task_id, reply_to, correlation_id))

    async def forget_waiters(self, task_id: str) -> None:
        """They have the Result. Raises JournalError."""
        await self._log_promise(Promise(task_id, told=True))

    async def keep_response(self, task_id: str, response: bytes) -> None:
        """Keep it for the draft-shaped Reward to come, or keep a Reward that waits; on disk when this returns.

        It is kept until the user has the Result. Raises JournalError.
        """
        await self._log_promise(Promise(task_id, response=response.decode()))

    async def shorten_promises(self) -> None:
        """Remove old segments, once what is still promised was written down again. Raises JournalError."""
        journal = self._journals[PROMISES]
        position = journal.end
        before = list(takewhile(lambda segment: segment.compressed, sealed_segments(self.folder, PROMISES)))
        if not before:
            return
        promises = list(self.index.promises())
        for start in range(0, len(promises), PROMISES_AT_ONCE):
            await self._write_promises(promises[start : start + PROMISES_AT_ONCE])
        await journal.seal()
        newest = sealed_segments(self.folder, PROMISES)[-1]
        with self._fence.changing():
            remove_before(self.folder, PROMISES, min(position, before[-1].end, newest.start))

    async def seal_in_step(self) -> None:
        """Assignments are sealed when interactions were, so that one may be removed with the other.

        Raises JournalError.
        """
        begin = self._journals[INTERACTIONS].begin
        if begin != self._sealed_up_to:
            await self._journals[ASSIGNMENTS].seal()
            self._sealed_up_to = begin

    async def forget_removed(self) -> None:
        """The index forgets what was removed from the logs, a little at a time. Raises JournalError."""
        floor = await asyncio.to_thread(read_start_offsets, self.folder)
        is_done = False
        while not is_done:
            is_done = self.index.follow(self.folder, floor)
            await asyncio.sleep(0)

    def torn_lines(self, task_id: str) -> list[Interaction]:
        """The lines of an open task's group that were in the log before a kill cut off the rest."""
        return self._torn.get(task_id, [])

    def mark_result_sent(self, task_id: str) -> None:
        """The user has the task's Result: what was held or kept to tell it is not needed, save where a late group is
        torn.
        """
        was_held = task_id not in self._torn and self._held.pop(task_id, None) is not None
        with suppress(IndexUnusable):
            self._index.forget_response(task_id)
            if was_held:
                self._index.forget_work(task_id)

    async def check_storage(self) -> None:
        """Raises StorageUnavailable while the disk below the logs takes nothing."""
        await asyncio.to_thread(check_writable, self.folder)
        await super().check_storage()

    # --- what is promised ------------------------------------------------------------------------------------------

    async def _log_promise(self, promise: Promise) -> None:
        """Put it into the index at once, for the task may be closed meanwhile; on disk when this returns."""
        self.index.apply(promise)
        self._unlogged.append(promise)
        try:
            await self._write_promises([promise])
        except JournalError:
            self._unlogged = [one for one in self._unlogged if one is not promise]
            raise

    async def _write_promises(self, promises: Sequence[Promise]) -> None:
        journal = self._journals[PROMISES]

        def apply(_: Position) -> None:
            self._unlogged = [one for one in self._unlogged if one not in promises]

        await self._append(PROMISES, [journal.stamp(msgspec.json.encode(one)) for one in promises], apply)

    async def _log_promises_of_before(self) -> None:
        """Orchestrators before 0.2 kept them in the index alone, unless that lay on another disk than the logs."""
        if self._unlogged:
            await self._write_promises(self._unlogged)
        unlink_database(self._index_path.with_name(SET_ASIDE))

    def _read_what_no_log_has(self) -> None:
        aside = self._index_path.with_name(SET_ASIDE)
        is_logged = active_path(self.folder, PROMISES).exists()
        for path in (self._index_path, aside):
            promises, notes = read_what_no_log_has(path)
            self._notes = notes | self._notes
            if path == aside or not is_logged:
                self._unlogged += promises

    # --- opening and mending ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        index_dir = self._index_path.parent
        index_dir.mkdir(parents=True, exist_ok=True)
        self._index_path = task_index(index_dir)
        if self._fence.took_from_living and self._index_path.exists():
            self._index_path = copy_index(self._index_path, index_dir / f"index-{self._fence.epoch}.sqlite")
        self._read_what_no_log_has()
        self._trajectories.sweep()
        super()._open()
        self._sealed_up_to = self._journals[INTERACTIONS].begin
        with self._fence.changing(), suppress(OSError):
            for path in task_indexes(index_dir):
                if path != self._index_path:
                    unlink_database(path)
        self.sequence = max(self._index.next_sequence(), self._last_logged_sequence() + 1)
        self.first_sequence = self.sequence

    def _open_journal(self, name: str) -> Journal:
        """Only the log of answers teaches, and is sealed; that of promises is shortened, and has smaller segments."""
        return Journal.open(
            self.folder,
            name,
            max_segment_bytes=min(self._segment_bytes, PROMISE_SEGMENT_BYTES if name == PROMISES else 1 << 62),
            gather_s=GATHER_S,
            file_type=self._file_type,
            fence=self._fence,
            seals=self._seals if name == INTERACTIONS else None,
        )

    def _make_index(self, path: Path) -> TaskIndex:
        return TaskIndex(path, self._fence.epoch or 0, self._notes)

    def _fault(self) -> str | None:
        return disagreement(self._index_path, self.folder)

    def _current(self) -> Mapping[str, Position]:
        return self._not_beyond(self._ends(), self._held)

    def _not_beyond(self, ends: Mapping[str, Position], held: Mapping[str, Position]) -> Mapping[str, Position]:
        return {**ends, INTERACTIONS: min(ends[INTERACTIONS], *held.values(), 1 << 62)}

    def _catch_up(self, index: TaskIndex, ends: Mapping[str, Position]) -> Mapping[str, Position]:
        held, unlogged = dict(self._held), tuple(self._unlogged)
        floor = read_start_offsets(self.folder)
        while not index.follow(self.folder, floor):
            continue
        for promise in (*self._logged_promises(index.position(PROMISES), ends[PROMISES]), *unlogged):
            index.apply(promise)  # before the lines: a task that something is kept for keeps its Work
        found = CatchUp(self.folder, index, ends).run()
        kept = index.kept_of_closed()
        if not self._is_open:
            by_kept_reward = {task_id: position for task_id, body, position in kept if _is_reward(body)}
            unanswered = found.unanswered | by_kept_reward
            held = self._held = found.torn | unanswered
            self._torn, self.unanswered = found.torn_lines, list(unanswered)
            log.info("caught-up", "the index is current", lines=found.lines, tasks=index.next_sequence())
        for task_id in {*found.unanswered, *(task_id for task_id, *_ in kept)} - held.keys():
            index.forget_response(task_id)
            index.forget_work(task_id)
        return self._not_beyond(ends, held)

    def _logged_promises(self, position: Position, end: Position) -> Iterable[Promise]:
        """The promises between the two; all before the end, for an index that knew another log."""
        start = max(position, read_start_offsets(self.folder).begin(PROMISES))
        start = start if has_place(self.folder, PROMISES, start) else 0
        records = read_json(self.folder, PROMISES, Promise, start)
        return (record.value for record in takewhile(lambda record: record.position < end, records))

    def _last_logged_sequence(self) -> int:
        """The number in the newest line of the log of assignments; -1 where it has none. The index may have lost it."""
        try:
            newest = self._last_line(ASSIGNMENTS)
            return Work.decode(newest).arm.sequence if newest else -1
        except DecodeError:
            return -1

    def newest_line(self) -> datetime | None:
        """When the newest line of the two logs was written, by the wall clock of that time. Blocks."""
        times: list[datetime] = []
        with suppress(DecodeError):
            if admitted := self._last_line(ASSIGNMENTS):
                times.append(Work.decode(admitted).admitted_at)
        with suppress(DecodeError):
            if logged := self._last_line(INTERACTIONS):
                times.append(Interaction.decode(logged).timestamp)
        return max(times, default=None)

    def _last_line(self, name: str) -> bytes | None:
        """Read it out of the active file; where that is empty, unpack a segment."""
        newest = active_tail(self.folder, name, 1)
        if not newest and self._journals[name].end > oldest_position(self.folder, name):
            begin = tail_position(self.folder, name, 1)
            newest = [line.data for line in read(self.folder, name, begin)]
        return newest[-1] if newest else None


def _is_reward(kept: bytes) -> bool:
    """Tell whether it is a Reward that waited for a big model: none comes again. Else it is an agent's Response."""
    try:
        Reward.decode(kept)
    except DecodeError:
        return False
    return True


def _split_trajectories(lines: Sequence[Interaction]) -> tuple[list[Interaction], dict[str, bytes]]:
    """The lines as they are logged, and by their sums the trajectories that they refer to."""
    rows, contents = [], {}
    for line in lines:
        row, content = taken_out(line)
        rows.append(row)
        if content is not None and row.trajectory is not None:
            contents[row.trajectory.sha256] = content
    return rows, contents
