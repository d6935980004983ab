"""`promises.jsonl`: who asked for a task a second time, and Responses kept for an external scorer.

No other log says so. Where the index lies beside the logs it holds them; where it lies on the disk of one machine, and
may be lost with it, they stand here too, before they are acknowledged. What is still owed is written down again once a
segment is full, and the segments before go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

import msgspec

from ratchet.logs.journal import Journal
from ratchet.logs.leadership import Fence
from ratchet.logs.names import PROMISES
from ratchet.logs.reader import read_json
from ratchet.logs.retention.trim import remove_before
from ratchet.logs.segments import Position, sealed_segments
from ratchet.logs.source import has_place
from ratchet.logs.start_offset import read_start_offsets
from services.orchestrator.ledger.index import ADD_WAITER, FORGET_WAITERS, KEEP_RESPONSE, Statement

SEGMENT_BYTES = 16 * 1024 * 1024
AT_ONCE = 1000


class Promise(msgspec.Struct, omit_defaults=True):
    """One of: a queue that waits for the task's Result; a Response kept for it; `told`: nobody waits any more."""

    task_id: str
    reply_to: str | None = None
    correlation_id: str | None = None
    response: str | None = None
    told: bool = False

    @property
    def statement(self) -> Statement:
        if self.told:
            return FORGET_WAITERS, (self.task_id,)
        if self.response is not None:
            return KEEP_RESPONSE, (self.task_id, self.response.encode())
        return ADD_WAITER, (self.task_id, self.reply_to, self.correlation_id)


def promise_of(statement: Statement) -> Promise:
    """Of what the index says is owed."""
    sql, (task_id, *what) = statement
    return Promise(task_id, response=what[0].decode()) if sql == KEEP_RESPONSE else Promise(task_id, *what)


def promised_since(folder: Path, position: Position) -> Iterator[Statement]:
    """As changes of an index that is current up to there; all of them, for one that knew another log."""
    start = max(position, read_start_offsets(folder).begin(PROMISES))
    for record in read_json(folder, PROMISES, Promise, start if has_place(folder, PROMISES, start) else 0):
        yield record.value.statement


class PromiseLog:
    """Opened by the leader alone. Use it from one event loop."""

    def __init__(self, folder: Path, segment_bytes: int, fence: Fence) -> None:
        self._folder = folder
        self._fence = fence
        self._journal = Journal.open(folder, PROMISES, max_segment_bytes=min(segment_bytes, SEGMENT_BYTES), fence=fence)

    @property
    def end(self) -> Position:
        """What is before is on disk, and was in the index first."""
        return self._journal.end

    async def add(self, *promises: Promise) -> None:
        """On disk when this returns. Raises JournalError."""
        await self._journal.append([self._journal.stamped(msgspec.json.encode(promise)) for promise in promises])

    async def shorten(self, owed: Iterable[Promise]) -> None:
        """Where there are segments to remove, after what is owed now was written down again. Raises JournalError."""
        position = self.end
        before = list(takewhile(lambda segment: segment.compressed, sealed_segments(self._folder, PROMISES)))
        if not before:
            return
        promises = list(owed)
        for start in range(0, len(promises), AT_ONCE):
            await self.add(*promises[start : start + AT_ONCE])
        await self._journal.seal()
        newest = sealed_segments(self._folder, PROMISES)[-1]
        with self._fence.changing():
            remove_before(self._folder, PROMISES, min(position, before[-1].end, newest.start))

    async def close(self) -> None:
        await self._journal.close()
