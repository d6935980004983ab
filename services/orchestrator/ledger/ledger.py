"""All the orchestrator knows of its tasks: two logs, which are the truth, and the index over them, which is a cache.

The index is changed only after the lines are on disk. At `open`, and after any trouble with the index, it is caught up
from the logs (`catch_up.py`); a broken or vanished one is built again from their beginning.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ratchet.files.append_file import check_writable
from ratchet.logs.answers import result_of
from ratchet.logs.journal import Journal
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, TASK_INDEX
from ratchet.logs.start_offset import read_start_offsets
from ratchet.service.errors import DiskFull, JournalError
from ratchet.service.telemetry import Log
from schemas.messages.result import Result
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.catch_up import CatchUp
from services.orchestrator.ledger.index import Entry, TaskIndex

GATHER_S = 0.004
"""How long a line waits for others to be synced with it: a sync costs more than writing a hundred lines."""

log = Log("ledger")


class _Mending:
    """The lines are in the log, so a failing index loses nothing: it is caught up before it is used again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> TaskIndex:
        return self._ledger._index

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, sqlite3.Error):
            return False
        self._ledger._broken = True
        log.error("index-broken", f"the index can't be written ({error}): it is caught up from the logs")
        return True


class Ledger:
    """The only writer of a logs folder: whoever opens one holds the folder's lock."""

    def __init__(self, folder: Path, *, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._assignments: Journal
        self._interactions: Journal
        self._index: TaskIndex
        self._broken = False
        self._sequence = 0
        self._began = 0
        self._sealed_up_to = 0
        self._current = {ASSIGNMENTS: 0, INTERACTIONS: 0}
        self._torn: dict[str, list[Interaction]] = {}
        self._mending = _Mending(self)
        self._held: dict[str, int] = {}
        """Tasks whose lines the next start must read again, and where those begin."""

    async def open(self) -> list[str]:
        """Repair the logs' tails and bring the index up to them. Takes as long as there is to read.

        Returns the ids of tasks that ended without an answer and whose users may not have been told.
        """
        ended = await asyncio.to_thread(self._open)
        self._began = self._sequence
        return ended

    async def close(self) -> None:
        await self._assignments.close()
        await self._interactions.close()
        self.commit()
        self._index.close()

    def find(self, task_id: str) -> Entry | None:
        return self.index.find(task_id)

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

    def positions(self) -> dict[str, int]:
        """Where the logs end now, as far as the index knows: nothing admitted from here on lies before."""
        return dict(self._current)

    def next_sequence(self) -> int:
        """The next number in assignment order; each is given once."""
        self._sequence += 1
        return self._sequence - 1

    async def admit(self, work: Work) -> bytes:
        """Write the assignment ahead. Returns the Work as logged, once it is on disk. Raises DiskFull, JournalError."""
        body = work.encode()
        position = await self._assignments.append([body])
        with self._mending as index:
            index.admit(work.arm.sequence, work.task_id, work.deadline.timestamp(), body, position)
            self._advance(ASSIGNMENTS, position + len(body) + 1)
        return body

    async def settle(self, lines: Sequence[Interaction], *, logged: int = 0) -> tuple[Result, bytes]:
        """Log a task's lines from the `logged`-th on and close it.

        Returns its Result, and that as JSON, once all are on disk. Raises DiskFull, JournalError. Where no Reward comes
        again to have a lost Result repeated (the task ended without an answer), call `told` once the user has it.
        """
        encoded = [line.encode() for line in lines[logged:]]
        result = result_of(lines)
        position = await self._interactions.append(encoded)
        body = result.encode()
        samples = 0 if lines[0].sample is None else len(lines)
        with self._mending as index:
            begin = self._held.pop(result.task_id, position) if logged else position
            index.settle(result.task_id, logged=samples, result=body, lines=begin, status=result.status)
            self._held.pop(result.task_id, None)
            self._torn.pop(result.task_id, None)
            if not samples:
                self._held[result.task_id] = position
            self._advance(INTERACTIONS, position + sum(map(len, encoded)) + len(encoded))
        return result, body

    async def seal_in_step(self) -> None:
        """Assignments are sealed when interactions were, so that one may be removed with the other.

        Raises DiskFull, JournalError.
        """
        if self._interactions.begin != self._sealed_up_to:
            await self._assignments.seal()
            self._sealed_up_to = self._interactions.begin

    async def forget_removed(self) -> None:
        """The index forgets what was removed from the logs, a little at a time. Raises JournalError."""
        floor = await asyncio.to_thread(read_start_offsets, self._folder)
        done = False
        while not done:
            done = True  # after a failure too: what is left to forget then comes with the catching up
            with self._mending as index:
                done = index.follow(self._folder, floor)
            await asyncio.sleep(0)

    def torn(self, task_id: str) -> list[Interaction]:
        """Those lines of an open task's group that were in the log before a kill cut off the rest."""
        return self._torn.get(task_id, [])

    def told(self, task_id: str) -> None:
        """The user has the Result of a task that ended without an answer. It is held on where a late group is torn."""
        if task_id not in self._torn and self._held.pop(task_id, None) is not None:
            with self._mending as index:
                index.forget_work(task_id)

    async def check_storage(self) -> None:
        """Raises StorageUnavailable while the disk below the logs takes nothing."""
        await asyncio.to_thread(check_writable, self._folder)
        await self._assignments.check()
        await self._interactions.check()

    def commit(self) -> None:
        """Make the index survive a kill as it is, so that the next start has less to read."""
        with self._mending as index:
            index.set_position(ASSIGNMENTS, self._current[ASSIGNMENTS])
            index.set_position(INTERACTIONS, min(self._current[INTERACTIONS], *self._held.values(), 1 << 62))
            index.commit()

    @property
    def index(self) -> TaskIndex:
        """Raises DiskFull while it can't be used."""
        if self._broken:
            self._mend()
        return self._index

    def _advance(self, name: str, end: int) -> None:
        self._current[name] = max(self._current[name], end)

    def _open(self) -> list[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._assignments = Journal.open(
            self._folder, ASSIGNMENTS, max_segment_bytes=self._segment_bytes, gather_s=GATHER_S
        )
        self._interactions = Journal.open(
            self._folder, INTERACTIONS, max_segment_bytes=self._segment_bytes, gather_s=GATHER_S
        )
        try:
            return self._open_index()
        except (JournalError, sqlite3.DatabaseError) as error:
            log.warning("index-rebuilt", f"{error}: it is built again from the logs")
            self._delete_index()
            return self._open_index()

    def _open_index(self) -> list[str]:
        self._index = TaskIndex(self._folder / TASK_INDEX)
        self._sealed_up_to = self._interactions.begin
        floor = read_start_offsets(self._folder)
        while not self._index.follow(self._folder, floor):
            continue
        ends = {ASSIGNMENTS: self._assignments.end, INTERACTIONS: self._interactions.end}
        for name, end in ends.items():
            if self._index.position(name) > end:
                raise JournalError(f"the index knows more than {name}.jsonl, which ends at byte {end}")
        caught_up = CatchUp(self._folder, self._index).run()
        self._current = ends
        self._held = caught_up.torn | caught_up.ended
        self._torn = caught_up.torn_lines
        self._sequence = max(self._sequence, self._index.next_sequence())
        self.commit()
        log.info("caught-up", "the index is current", lines=caught_up.lines, tasks=self._sequence)
        return list(caught_up.ended)

    def _delete_index(self) -> None:
        with suppress(AttributeError, sqlite3.Error):
            self._index.close()
        for suffix in ("", "-wal", "-shm"):
            (self._folder / f"{TASK_INDEX}{suffix}").unlink(missing_ok=True)

    def _mend(self) -> None:
        with suppress(sqlite3.Error):
            self._index.close()
        try:
            self._open_index()
        except (sqlite3.Error, JournalError) as error:
            raise DiskFull(f"the index in {self._folder} can't be written ({error}): free some disk") from None
        self._broken = False
