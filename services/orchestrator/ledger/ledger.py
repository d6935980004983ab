"""All the orchestrator knows of its tasks: two logs, which are the truth, and the index over them, which is a cache.

The index is changed only after the lines are on disk. At `open`, and after any trouble with the index, it is caught up
from the logs (`catch_up.py`); one that is broken, vanished, or does not agree with the logs is built again from their
beginning. What a caller has in the log is never lost by the index: nothing of it is said here before it is in both, or
the index has been caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from time import monotonic

from ratchet.files.append_file import AppendFile, check_writable
from ratchet.files.sqlite_files import rename_database, unlink_database
from ratchet.logs.best_answer import result_of
from ratchet.logs.index_check import disagreement
from ratchet.logs.journal import Journal
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, PROMISES, TASK_INDEX, file_name, task_index, task_indexes
from ratchet.logs.reader import active_tail, read, tail_position
from ratchet.logs.segments import oldest_position
from ratchet.logs.source import has_place
from ratchet.logs.start_offset import read_start_offsets
from ratchet.logs.trajectories import TrajectoryFolder, taken_out
from ratchet.service.errors import JournalError, StorageUnavailable
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.messages.result import Result
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.catch_up import CatchUp, CaughtUp
from services.orchestrator.ledger.index import (
    Entry,
    IndexUnusable,
    Statement,
    TaskIndex,
    copied,
    is_in_use,
    promises_in,
)
from services.orchestrator.ledger.logged_work import logged_work
from services.orchestrator.ledger.promises import Promise, PromiseLog, promise_of, promised_since

SET_ASIDE = f"{TASK_INDEX}.broken"
"""An index that is not believed any more, until what no log has was taken from it."""
GATHER_S = 0.004
"""How long a line waits for others to be synced with it: a sync costs more than writing a hundred lines."""
KEPT_WORKS, KEPT_WORK_BYTES = 1_024, 8_192
"""Works of the newest tasks, those up to so many bytes, that need not be decoded when their answers come."""
MEND_AGAIN_S = 0.25
"""Seconds between two tries to mend an index: each reads what is missing."""

log = Log("ledger")


class AppliedLines:
    """Up to which byte every line of a log has been seen to, whatever the order in which that was done.

    A caller that was cancelled while its line went to the disk leaves a gap: what is behind it is read again at the
    next start.
    """

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._behind_a_gap: dict[int, int] = {}

    def add(self, position: int, end: int) -> None:
        if position < self.end:
            return
        self._behind_a_gap[position] = end
        while (following := self._behind_a_gap.pop(self.end, None)) is not None:
            self.end = following

    def has(self, position: int) -> bool:
        return position < self.end or position in self._behind_a_gap


class Ledger:
    """The only writer of a logs folder: whoever opens one leads it (ratchet/logs/leadership.py)."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int,
        index_dir: Path | None = None,
        file_type: type[AppendFile] = AppendFile,
        seconds: Callable[[], float] = monotonic,
        fence: Fence = UNFENCED,
        seals: Path | None = None,
    ) -> None:
        """`index_dir`: of the index, on a local disk; the logs folder if not given. `fence`: it leads at `open`.

        `seals`: folder of the seals of the log that teaches.
        """
        self._folder = folder
        self._index_dir = index_dir or folder
        self._fence = fence
        self._seals = seals
        self._segment_bytes = segment_bytes
        self._file_type = file_type
        self._seconds = seconds
        self._assignments: Journal
        self._interactions: Journal
        self._index: TaskIndex
        self._carried: tuple[Statement, ...] = ()
        """What a broken index had not committed of that which no log has."""
        self._mend_after = 0.0
        self._promises: PromiseLog | None = None
        self._trajectories = TrajectoryFolder(folder, fence)
        self._sequence = 0
        self._began = 0
        self._sealed_up_to = 0
        self._read_up_to = {ASSIGNMENTS: 0, INTERACTIONS: 0}
        """Lines before were in the logs when the index was caught up: they are in it."""
        self._applied = {ASSIGNMENTS: AppliedLines(), INTERACTIONS: AppliedLines()}
        self._torn: dict[str, list[Interaction]] = {}
        self._syncing: asyncio.Task[None] | None = None
        self._rebuilding: asyncio.Task[None] | None = None
        self._works: dict[str, Work] = {}
        self._held: dict[str, int] = {}
        """Tasks whose lines the next start must read again, and where those begin."""

    async def open(self) -> list[str]:
        """Repair the logs' tails and bring the index up to them. Takes as long as there is to read.

        Returns the ids of tasks that ended without an answer and whose users may not have been told.
        Raises JournalError.
        """
        ended = await asyncio.to_thread(self._open)
        self._began = self._sequence
        return ended

    async def close(self) -> None:
        """What the index could not keep is read from the logs at the next start."""
        if self._rebuilding is not None:
            await asyncio.wait([self._rebuilding])
        await self._assignments.close()
        await self._interactions.close()
        if self._promises is not None:
            await self._promises.close()
        try:
            self.commit()
        except StorageUnavailable as error:
            log.warning("index-behind", f"{error}: the next start catches up")
        self._index.close()

    def find(self, task_id: str) -> Entry | None:
        """Raises StorageUnavailable while it can't be used."""
        return self.index.find(task_id)

    async def newest_line(self) -> datetime | None:
        """When the newest line of the two logs was written, by the wall clock of that time."""
        return await asyncio.to_thread(self._newest_line)

    async def work_of(self, known: Entry) -> Work:
        """As it was admitted. Raises JournalError where the log does not hold it any more."""
        if known.work is not None:
            return self._works.pop(known.task_id, None) or Work.decode(known.work)
        return await asyncio.to_thread(logged_work, self._folder, known)

    def has_forgotten(self, task_id: str) -> bool:
        """True for a task that was answered, but of which the logs were removed to keep the disk within its bound."""
        return self.index.is_forgotten(task_id)

    @property
    def sequence(self) -> int:
        """The number the next task will get."""
        return self._sequence

    @property
    def began(self) -> int:
        """The number the first task after this start got, or will get."""
        return self._began

    @property
    def epoch(self) -> int | None:
        """Stands in every line that is logged here."""
        return self._fence.epoch

    def positions(self) -> dict[str, int]:
        """Where the logs end now, as far as the index knows: nothing admitted from here on lies before."""
        return {name: applied.end for name, applied in self._applied.items()}

    def has_place(self, log: str, position: int) -> bool:
        """False for a position of another log than the one that is there now. Raises StorageUnavailable."""
        return has_place(self._folder, log, position)

    def next_sequence(self) -> int:
        """The next number in assignment order; each is given once."""
        self._sequence += 1
        return self._sequence - 1

    async def admit(self, work: Work) -> bytes:
        """Write the assignment ahead. Returns the Work as logged, once it is on disk. Raises JournalError."""
        body = self._assignments.stamped(work.encode())
        position = await self._assignments.append([body])
        if len(body) <= KEPT_WORK_BYTES:
            self._works[work.task_id] = work
            if len(self._works) > KEPT_WORKS:
                del self._works[next(iter(self._works))]
        if not self._is_known(ASSIGNMENTS, position, len(body) + 1):
            try:
                until = work.deadline.timestamp()
                self._index.admit(work.arm.sequence, work.task_id, until, body, position, work.owner)
            except IndexUnusable:
                return body  # the next one reads it from the log
        return body

    async def settle(self, lines: Sequence[Interaction], *, logged: int = 0) -> tuple[Result, bytes]:
        """Log a task's lines from the `logged`-th on and close it; what is too long for a line goes before it.

        Returns its Result, and that as JSON, once all are on disk, whatever becomes of the index. Raises JournalError:
        then nothing is. Where no Reward comes again to have a lost Result repeated (the task ended
        without an answer), call `told` once the user has it.
        """
        rows, long = _taken_out(lines[logged:])
        encoded = [self._interactions.stamped(row.encode()) for row in rows]
        result = result_of(lines)
        body = result.encode()
        if long:
            before = self._interactions.end
            await asyncio.to_thread(self._trajectories.write, long, before)
        position = await self._interactions.append(encoded)
        if long:
            await asyncio.to_thread(self._trajectories.logged, long.keys(), before)
        samples = 0 if lines[0].sample is None else len(lines)
        begin = self._held.pop(result.task_id, position) if logged else position
        self._held.pop(result.task_id, None)
        self._torn.pop(result.task_id, None)
        if not samples:
            self._held[result.task_id] = position
        if not self._is_known(INTERACTIONS, position, sum(map(len, encoded)) + len(encoded)):
            try:
                self._index.settle(result.task_id, logged=samples, result=body, lines=begin, status=result.status)
            except IndexUnusable:
                return result, body  # the next one reads it from the log
        return result, body

    async def add_waiter(self, task_id: str, reply_to: str, correlation_id: str | None) -> None:
        """One more queue that wants the Result of an open task; on disk when this returns. Raises JournalError."""
        self.index.add_waiter(task_id, reply_to, correlation_id)
        await self._promised(Promise(task_id, reply_to, correlation_id))

    async def forget_waiters(self, task_id: str) -> None:
        """They have the Result. Raises JournalError."""
        self.index.forget_waiters(task_id)
        if self._promises is not None:
            await self._promises.add(Promise(task_id, told=True))

    async def keep_response(self, task_id: str, response: bytes) -> None:
        """For the draft-shaped Reward to come; on disk when this returns. Raises JournalError."""
        self.index.keep_response(task_id, response)
        await self._promised(Promise(task_id, response=response.decode()))

    async def shorten_promises(self) -> None:
        """Raises JournalError."""
        if self._promises is not None:
            await self._promises.shorten(map(promise_of, self.index.promises()))

    async def seal_in_step(self) -> None:
        """Assignments are sealed when interactions were, so that one may be removed with the other.

        Raises JournalError.
        """
        if self._interactions.begin != self._sealed_up_to:
            await self._assignments.seal()
            self._sealed_up_to = self._interactions.begin

    async def forget_removed(self) -> None:
        """The index forgets what was removed from the logs, a little at a time. Raises JournalError."""
        floor = await asyncio.to_thread(read_start_offsets, self._folder)
        done = False
        while not done:
            done = self.index.follow(self._folder, floor)
            await asyncio.sleep(0)

    def torn(self, task_id: str) -> list[Interaction]:
        """Those lines of an open task's group that were in the log before a kill cut off the rest."""
        return self._torn.get(task_id, [])

    def told(self, task_id: str) -> None:
        """The user has the Result of a task that ended without an answer. It is held on where a late group is torn."""
        if task_id not in self._torn and self._held.pop(task_id, None) is not None:
            with suppress(IndexUnusable):
                self._index.forget_work(task_id)

    async def check_storage(self) -> None:
        """Raises StorageUnavailable while the disk below the logs takes nothing."""
        await asyncio.to_thread(check_writable, self._folder)
        await self._assignments.check()
        await self._interactions.check()

    def commit(self) -> None:
        """Make the index survive a kill as it is, so that the next start has less to read. Raises JournalError."""
        self._commit(durable=False)

    @property
    def index(self) -> TaskIndex:
        """Raises StorageUnavailable while it can't be used."""
        if self._index.broken:
            self._mend()
        return self._index

    def _is_known(self, name: str, position: int, size: int) -> bool:
        """Whether the index has the line already, because it was caught up while the line was on its way back."""
        self._applied[name].add(position, position + size)
        return position < self._read_up_to[name]

    def _commit(self, *, durable: bool) -> None:
        self._fence.check()
        try:
            self.index.commit(self._positions(), durable=durable)
        except IndexUnusable:
            self._mend(durable=durable)

    def _positions(self) -> Mapping[str, int]:
        interactions = min(self._applied[INTERACTIONS].end, *self._held.values(), 1 << 62)
        positions = {ASSIGNMENTS: self._applied[ASSIGNMENTS].end, INTERACTIONS: interactions}
        return positions if self._promises is None else positions | {PROMISES: self._promises.end}

    async def _promised(self, promise: Promise) -> None:
        """In the index already: here it is made to last, in a log where the index may be lost with its machine."""
        if self._promises is None:
            await self._synced()
        else:
            await self._promises.add(promise)

    async def _synced(self) -> None:
        """All that the index was told so far is on disk when this returns; those who wait share a sync."""
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(self._sync_soon())
        await asyncio.shield(self._syncing)

    async def _sync_soon(self) -> None:
        await asyncio.sleep(GATHER_S)
        self._commit(durable=True)

    # --- opening and mending ---------------------------------------------------------------------------------------

    def _open(self) -> list[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._index_dir.mkdir(parents=True, exist_ok=True)
        self._index_path = task_index(self._index_dir)
        self._assignments = self._journal(ASSIGNMENTS)
        self._interactions = self._journal(INTERACTIONS)
        self._sealed_up_to = self._interactions.begin
        self._trajectories.sweep()
        if self._index_dir.resolve() != self._folder.resolve():
            self._promises = PromiseLog(self._folder, self._segment_bytes, self._fence)
        if self._fence.took_from_living and self._index_path.exists() and is_in_use(self._index_path):
            self._index_path = copied(self._index_path, self._index_dir / f"index-{self._fence.epoch}.sqlite")
        caught_up = self._take_up_index(self._checked)
        self._held = caught_up.torn | caught_up.ended
        self._torn = caught_up.torn_lines
        self._sequence = max(self._sequence, self._index.next_sequence(), self._last_logged_sequence() + 1)
        log.info("caught-up", "the index is current", lines=caught_up.lines, tasks=self._sequence)
        self._finish(durable=True)
        return list(caught_up.ended)

    def _journal(self, name: str) -> Journal:
        return Journal.open(
            self._folder,
            name,
            max_segment_bytes=self._segment_bytes,
            gather_s=GATHER_S,
            file_type=self._file_type,
            fence=self._fence,
            seals=self._seals if name == INTERACTIONS else None,
        )

    def _mend(self, *, durable: bool = False) -> None:
        """Put another index in the broken one's place, with all it should know, committed. Raises IndexUnusable."""
        broken = self._index.broken
        if broken is None:
            return
        self._fence.check()
        if self._seconds() < self._mend_after or self._is_rebuilding:
            raise broken.again()
        log.error("index-broken", f"{broken}: it is caught up from the logs")
        self._mend_after = self._seconds() + MEND_AGAIN_S
        self._carried += self._index.take_uncommitted()
        before = self._index
        if broken.corrupt:
            self._rebuilding = asyncio.create_task(self._rebuild(broken))
            raise broken.again()
        try:
            caught_up = self._take_up_index(lambda: None)
            self._hold_the_untold(caught_up)
            self._finish(durable=durable)
        except (JournalError, OSError) as error:
            if self._index is not before:
                self._index.close()
            raise IndexUnusable(before.path, error, corrupt=False) from error
        self._mend_after = 0.0

    @property
    def _is_rebuilding(self) -> bool:
        return self._rebuilding is not None and not self._rebuilding.done()

    async def _rebuild(self, corrupt: IndexUnusable) -> None:
        """In a thread, for it takes as long as there is to read; meanwhile messages wait. The next use takes it up."""
        ends = {name: applied.end for name, applied in self._applied.items()}
        try:
            await asyncio.to_thread(self._build_again, ends, frozenset(self._held))
        except (JournalError, OSError) as error:
            log.error("index-not-rebuilt", f"{error}: it is tried again")
            self._mend_after = self._seconds() + MEND_AGAIN_S
        else:
            log.warning("index-rebuilt", f"{corrupt.path} was built again from the logs")
            self._index.broken = IndexUnusable(corrupt.path, corrupt.reason, corrupt=False)

    def _build_again(self, ends: Mapping[str, int], untold: Collection[str]) -> None:
        """`untold`: of the tasks that ended without an answer, those whose users don't know yet."""
        self._set_aside()
        with closing(TaskIndex(self._index_path, self._fence.epoch or 0)) as index:
            self._forget_all_removed(index)
            found = CatchUp(self._folder, index, ends).run()
            for task_id in found.ended.keys() - untold:
                index.forget_work(task_id)
            again = [position for task_id, position in found.ended.items() if task_id in untold]
            index.commit({**ends, INTERACTIONS: min(ends[INTERACTIONS], *found.torn.values(), *again, 1 << 62)})

    def _take_up_index(self, prepare: Callable[[], None]) -> CaughtUp:
        """Opens it and catches up. What can't be believed is set aside, and a new one built."""
        try:
            prepare()
            return self._caught_up()
        except JournalError as error:
            if isinstance(error, IndexUnusable) and not error.corrupt:
                raise
            log.warning("index-rebuilt", f"{error}: it is built again from the logs")
            self._set_aside()
            return self._caught_up()

    def _caught_up(self) -> CaughtUp:
        index = TaskIndex(self._index_path, self._fence.epoch or 0)
        try:
            self._forget_all_removed(index)
            ends = {ASSIGNMENTS: self._assignments.end, INTERACTIONS: self._interactions.end}
            for name, end in ends.items():
                if index.position(name) > end:
                    raise JournalError(f"the index knows more than {file_name(name)}, which ends at byte {end}")
            caught_up = CatchUp(self._folder, index, ends).run()
            promised = promised_since(self._folder, index.position(PROMISES))
            index.replay([*promises_in(self._index_dir / SET_ASIDE), *promised, *self._carried])
        except BaseException:
            index.close()
            raise
        self._index = index
        self._read_up_to = ends
        return caught_up

    def _forget_all_removed(self, index: TaskIndex) -> None:
        """As `forget_removed`, at once."""
        floor = read_start_offsets(self._folder)
        while not index.follow(self._folder, floor):
            continue

    def _finish(self, *, durable: bool) -> None:
        """An index is taken up once it is committed; only then is what it was made from given up."""
        applied = {name: AppliedLines(end) for name, end in self._read_up_to.items()}
        before, self._applied = self._applied, applied
        try:
            self._index.commit(self._positions(), durable=durable)
        except BaseException:
            self._applied = before
            raise
        self._carried = ()
        left = [self._index_dir / SET_ASIDE, *task_indexes(self._index_dir)]
        with self._fence.changing(), suppress(OSError):
            for path in left:
                if path != self._index_path:
                    unlink_database(path)

    def _hold_the_untold(self, caught_up: CaughtUp) -> None:
        """Of tasks that ended without an answer, those whose ending is still on its way back from the disk are held."""
        for task_id, position in caught_up.ended.items():
            if not self._applied[INTERACTIONS].has(position):
                self._held[task_id] = position
            elif task_id not in self._held:
                self._index.forget_work(task_id)

    def _checked(self) -> None:
        """Raises JournalError for an index that says it knows what it does not know."""
        why = disagreement(self._index_path, self._folder)
        if why is not None:
            raise JournalError(f"the index {self._index_path} does not agree with the logs: {why}")

    def _set_aside(self) -> None:
        """Out of the way, but not deleted before what no log has was taken from it."""
        aside = self._index_dir / SET_ASIDE
        with self._fence.changing():
            if not aside.exists():
                rename_database(self._index_path, aside)
            unlink_database(self._index_path)

    def _last_logged_sequence(self) -> int:
        """Of the newest line in the log of assignments; -1 where it has none. The index may have lost its row."""
        try:
            newest = self._last_line(self._assignments)
            return Work.decode(newest).arm.sequence if newest else -1
        except DecodeError:
            return -1

    def _newest_line(self) -> datetime | None:
        times: list[datetime] = []
        with suppress(DecodeError):
            if admitted := self._last_line(self._assignments):
                times.append(Work.decode(admitted).admitted_at)
        with suppress(DecodeError):
            if logged := self._last_line(self._interactions):
                times.append(Interaction.decode(logged).timestamp)
        return max(times, default=None)

    def _last_line(self, journal: Journal) -> bytes | None:
        """At once out of the active file; where that is empty, by unpacking a segment."""
        newest = active_tail(self._folder, journal.name, 1)
        if not newest and journal.end > oldest_position(self._folder, journal.name):
            begin = tail_position(self._folder, journal.name, 1)
            newest = [line.data for line in read(self._folder, journal.name, begin)]
        return newest[-1] if newest else None


def _taken_out(lines: Sequence[Interaction]) -> tuple[list[Interaction], dict[str, bytes]]:
    """The lines as they are logged, and by their sums the trajectories that they refer to."""
    rows, contents = [], {}
    for line in lines:
        row, content = taken_out(line)
        rows.append(row)
        if content is not None and row.trajectory is not None:
            contents[row.trajectory.sha256] = content
    return rows, contents
