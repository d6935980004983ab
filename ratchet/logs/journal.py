"""The writer of an append-only log of JSON lines: group commit, repair of a torn tail, rotation.

`append` returns when its lines are on disk. While one write and fdatasync runs in a thread, further appends gather and
go together in the next, so the cost of a sync is shared by all who wait for it.

What is left out: who may write. One process writes a log at a time: lead its folder (leadership.py), or take a lock.

What a crash can leave behind: lines that were written but never acknowledged, of which some of a group and not others
may have survived. So whoever appends again after a crash must be read idempotently, by (task, sample).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from ratchet.files.append_file import AppendFile, explain
from ratchet.logs.journal_file import JournalFile
from ratchet.logs.leadership import UNFENCED, Fence
from ratchet.logs.names import active_path
from ratchet.logs.seals import Sealer
from ratchet.logs.segments import MAX_LINE_BYTES, Position, compress_sealed
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch takes no further append beyond this; a single larger append still goes in one write."""

log = Log(__name__)


class _Group(NamedTuple):
    """The lines of one append, which stay together, and who waits for their position."""

    data: bytes
    position: asyncio.Future[Position]
    apply: Callable[[Position], None] | None


class Journal:
    """A log open for appending. Use it from one event loop."""

    def __init__(
        self,
        folder: Path,
        name: str,
        max_segment_bytes: int,
        gather_s: float,
        file_type: type[AppendFile],
        fence: Fence,
        seals: Path | None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.path = active_path(folder, name)
        self._gather_s = gather_s
        self._fence = fence
        self._file = JournalFile(
            folder, name, max_segment_bytes, file_type, fence, Sealer(seals, name) if seals else None
        )
        self._end = self._file.end
        self._waiting: deque[_Group] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._writer = ThreadPoolExecutor(1, f"{name}-writer")
        self._compressor = ThreadPoolExecutor(1, f"{name}-compressor")
        self._compressing: Future[None] = self._compressor.submit(self._compress)
        self._batch_bytes = min(MAX_BATCH_BYTES, max_segment_bytes)
        self._closed = False
        self._refused = 0
        """Bytes of the last append, where the disk did not take it."""

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        *,
        max_segment_bytes: int = 256 * 1024 * 1024,
        gather_s: float = 0.0,
        file_type: type[AppendFile] = AppendFile,
        fence: Fence = UNFENCED,
        seals: Path | None = None,
    ) -> Self:
        """Create or repair the log, so that it ends with a whole line that is on disk.

        A torn last line goes to quarantine. With `gather_s`, a commit that follows one of several appends begins at
        least so many seconds after that one began, so that more can join it. `fence` says who may write; `seals` is
        the folder that keeps what was written (see seals.py). Blocks; raises DiskFull, JournalError.
        """
        try:
            return cls(folder, name, max_segment_bytes, gather_s, file_type, fence, seals)
        except OSError as error:
            raise explain(error, active_path(folder, name)) from error

    @property
    def end(self) -> Position:
        """The place of the next line; everything before it is on disk, and applied (see `append`)."""
        return self._end

    @property
    def begin(self) -> Position:
        """The beginning of the active file: all before it is sealed."""
        return self._file.start

    async def seal(self) -> None:
        """Begin a new file now, unless the active one is empty. Raises DiskFull, JournalError: nothing has changed."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._file.seal)
        if self._file.take_sealed():
            self._compressing = self._compressor.submit(self._compress)

    def stamp(self, line: bytes) -> bytes:
        """A line as it is to be appended: with the epoch of its writer."""
        epoch = self._fence.epoch
        return line if epoch is None else b'%b,"epoch":%d}' % (line[:-1], epoch)

    async def append(self, lines: Sequence[bytes], apply: Callable[[Position], None] | None = None) -> Position:
        """Returns the position of the first line once all are on disk; the others follow it without a gap.

        `apply` is called with that position in the same turn of the loop in which `end` passes the lines: in the order
        of the log, and also where the caller was cancelled. Lines are JSON objects without a newline.

        Raises DiskFull and JournalError: none of the lines is in the log then, and the next append tries again. A
        caller that is cancelled does not know: the lines may be written.
        """
        if self._closed:
            raise JournalError(f"{self.path} is closed: no line can be appended to it")
        group = _Group(join_lines(lines), asyncio.get_running_loop().create_future(), apply)
        self._waiting.append(group)
        if self._committer is None or self._committer.done():
            self._committer = asyncio.create_task(self._commit_waiting())
        return await group.position

    async def check(self) -> None:
        """Try whether the disk takes as much as the append that it refused. Raises StorageUnavailable."""
        if self._refused and not self._closed:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._file.probe, self._refused)
            self._refused = 0

    async def close(self) -> None:
        """Wait for what is being written and compressed. Appending after it is an error; closing again is not."""
        self._closed = True
        if self._committer is not None:
            await asyncio.wait([self._committer])
        await asyncio.wrap_future(self._compressing)
        self._writer.shutdown()
        self._compressor.shutdown()
        self._file.close()

    async def _commit_waiting(self) -> None:
        seconds = asyncio.get_running_loop().time
        company, began = 1, 0.0
        while self._waiting:
            # Counted from the beginning: where a sync takes as long, what came meanwhile has gathered already.
            if company > 1 and (wait_s := began + self._gather_s - seconds()) > 0:
                await asyncio.sleep(wait_s)
            batch, began = self._next_batch(), seconds()
            company = len(batch)
            await self._commit(batch)

    def _next_batch(self) -> list[_Group]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].data)
        while self._waiting and size + len(self._waiting[0].data) <= self._batch_bytes:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].data)
        return batch

    async def _commit(self, batch: list[_Group]) -> None:
        """Settles every group of the batch, whatever happens: nobody is left waiting."""
        data = b"".join(group.data for group in batch)
        try:
            position = await asyncio.get_running_loop().run_in_executor(self._writer, self._file.append, data)
        except Exception as error:
            self._refused = len(data)
            for group in batch:
                _fail(group, error)
            return
        self._refused = 0
        if self._file.take_sealed():
            self._compressing = self._compressor.submit(self._compress)
        for group in batch:
            self._end = position + len(group.data)
            try:
                if group.apply is not None:
                    group.apply(position)
            except Exception as error:  # the others' lines are on disk as well
                _fail(group, error)
            else:
                if not group.position.done():
                    group.position.set_result(position)
            position = self._end

    def _compress(self) -> None:
        """Runs in a thread. What fails stays uncompressed, which loses nothing, until the next rotation or start."""
        try:
            compress_sealed(self.folder, self.name, self._fence.changing)
        except (OSError, JournalError) as error:
            log.error("compression-failed", f"segments of {self.path} stay uncompressed: {error}", exc_info=error)


def _fail(group: _Group, error: Exception) -> None:
    if not group.position.done():
        group.position.set_exception(error)


def join_lines(lines: Sequence[bytes]) -> bytes:
    """Join them as they are written. Raises JournalError for what a reader would not take for the same lines."""
    for line in lines:
        if not (line.startswith(b"{") and line.endswith(b"}")) or b"\n" in line or len(line) > MAX_LINE_BYTES:
            raise JournalError(
                f"not a line for a log: it must be one JSON object of at most {MAX_LINE_BYTES:,} bytes without a "
                f"newline, but is {len(line):,} bytes: {line[:80]!r}"
            )
    if not lines:
        raise JournalError("nothing to append: give at least one line")
    return b"\n".join(lines) + b"\n"
