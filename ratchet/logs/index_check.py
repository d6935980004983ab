"""Does the orchestrator's index agree with the logs it is a cache over? A look that costs little, at every start and by
`ratchet doctor`.

Compared are the number of its rows with the number it wrote down when they were committed, and lines of the logs with
what it says of them: the last ones it claims to know and some spread over the active files; all of an active file for
an index that wrote down no number. Lines in sealed segments are not looked at. Read only; blocks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec

from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, active_path
from ratchet.logs.reader import Line
from ratchet.logs.rows import AssignedRow, EndedRow
from ratchet.logs.segments import read_start_offsets, sealed_end, sealed_segments

ROWS = "tasks.rows"
"""Among the index's positions: how many tasks it has a row for."""
PLACES = 64
"""Places at which an active file is looked into, evenly spread."""
LAST_BYTES = 64 * 1024


_assigned, _logged = msgspec.json.Decoder(AssignedRow), msgspec.json.Decoder(EndedRow)


def disagreement(index: Path, logs_dir: Path) -> str | None:
    """Return a sentence on what the index does not know although it says so; None where nothing was found.

    None too where there is no index, or none that can be read: that is found by opening it.
    """
    if not index.exists():
        return None
    how = "mode=ro" if index.with_name(f"{index.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{index.absolute().as_uri()}?{how}", uri=True)) as db:
            db.execute("BEGIN")
            return _rows(db) or _assignments(db, logs_dir) or _interactions(db, logs_dir)
    except sqlite3.Error:
        return None


def _position(db: sqlite3.Connection, name: str) -> int | None:
    row = db.execute("SELECT position FROM positions WHERE log = ?", (name,)).fetchone()
    return row[0] if row else None


def _rows(db: sqlite3.Connection) -> str | None:
    (there,) = db.execute("SELECT count(*) FROM tasks").fetchone()
    if (should := _position(db, ROWS)) is None or should == there:
        return None
    return f"it has {there:,} tasks, but {should:,} were committed"


def _assignments(db: sqlite3.Connection, logs_dir: Path) -> str | None:
    floor = read_start_offsets(logs_dir).sequence
    for line in _some_lines(db, logs_dir, ASSIGNMENTS):
        try:
            work = _assigned.decode(line.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if work.arm.sequence >= floor and not _knows(db, work, line.position):
            return f"it does not know task {work.task_id}, which is in the log at byte {line.position:,}"
    return None


def _knows(db: sqlite3.Connection, work: AssignedRow, position: int) -> bool:
    """Tell whether it is known, or passed over: of two lines with one number or one id the first counts
    (`quarantine.jsonl`)."""
    query = "SELECT coalesce(line, 0) FROM tasks WHERE task_id = ? OR sequence = ?"
    rows = db.execute(query, (work.task_id, work.arm.sequence)).fetchall()
    return any(line <= position for (line,) in rows)


def _interactions(db: sqlite3.Connection, logs_dir: Path) -> str | None:
    for line in _some_lines(db, logs_dir, INTERACTIONS):
        try:
            logged = _logged.decode(line.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if logged.sample is None or logged.sample == logged.group_size - 1:
            row = db.execute("SELECT ended FROM tasks WHERE task_id = ?", (logged.task_id,)).fetchone()
            if row is not None and row[0] is None:
                return f"task {logged.task_id} is open in it, and closed in the log at byte {line.position:,}"
    return None


def _some_lines(db: sqlite3.Connection, logs_dir: Path, name: str) -> Iterator[Line]:
    """Yield lines of the active file, before the byte up to which the index says it is current."""
    start, known = sealed_end(sealed_segments(logs_dir, name)), _position(db, name) or 0
    path = active_path(logs_dir, name)
    if known <= start or not path.exists():
        return
    size = known - start
    if _position(db, ROWS) is None:
        yield from _lines(path, start, 0, size)
        return
    for place in range(PLACES):
        yield from islice(_lines(path, start, size * place // PLACES, size), 1)
    yield from _lines(path, start, max(0, size - LAST_BYTES), size)


def _lines(path: Path, start: int, offset: int, size: int) -> Iterator[Line]:
    """Whole lines that begin at the offset or behind it, and end within so many bytes of the file."""
    with path.open("rb") as file:
        if offset:
            file.seek(offset - 1)
            file.readline()
        while (begin := file.tell()) < size:
            data = file.readline()
            if not data.endswith(b"\n") or begin + len(data) > size:
                return
            yield Line(start + begin, start + begin + len(data), data[:-1])
