"""`retention.json`: where each log begins now, after its oldest segments were removed on purpose.

Without it a log begins at byte 0, and a missing segment is a loss that readers refuse to pass over. Written before the
segments go, so that a crash in between leaves files that nobody reads, never a gap.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ratchet.files.atomic_file import replace_file
from ratchet.logs.names import START_OFFSETS, active_path
from ratchet.logs.segments import Position
from ratchet.service.errors import JournalError, LogRemoved


class LogStartOffsets(msgspec.Struct, frozen=True):
    """The parts that were removed from the logs of one folder."""

    begins: dict[str, Position] = {}
    """By log: its first byte that is still there."""
    sequence: int = 0
    """Tasks with a lower assignment number were removed: they are known by the sums of their ids only."""
    ids: int = 0
    """How many ids of such tasks were ever kept (`ratchet/logs/retention/removed_ids.py`)."""

    def begin(self, log: str) -> Position:
        return self.begins.get(log, 0)


_decoder = msgspec.json.Decoder(LogStartOffsets)


def read_start_offsets(folder: Path) -> LogStartOffsets:
    """Raises JournalError for a file that can't be read."""
    path = folder / START_OFFSETS
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return LogStartOffsets()
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"{path} can't be read ({error}): restore it from a copy of the logs folder") from None


def write_start_offsets(folder: Path, starts: LogStartOffsets) -> None:
    """Returns once it is on disk. Raises DiskFull, JournalError."""
    replace_file(folder / START_OFFSETS, msgspec.json.format(msgspec.json.encode(starts), indent=1) + b"\n")


def refuse_removed(folder: Path, name: str, position: Position) -> None:
    """Raises LogRemoved if the byte at the position was removed on purpose."""
    if position < (begin := read_start_offsets(folder).begin(name)):
        raise LogRemoved(
            f"{active_path(folder, name)} begins at byte {begin:,} now: what was before, byte {position:,} too, was "
            f"removed to stay within RATCHET_LOG_KEEP_GB and RATCHET_LOG_KEEP_DAYS. It may be in a backup"
        )
