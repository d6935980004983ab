"""The Work of a task as it was logged at its admission: what is true of it, whatever a message says."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ratchet.logs.names import ASSIGNMENTS
from ratchet.logs.reader import read
from ratchet.service.errors import JournalError
from schemas.messages.base import DecodeError
from schemas.messages.work import Work
from services.orchestrator.ledger.index import Entry


def logged_work(logs_dir: Path, known: Entry) -> Work:
    """Blocks: up to half a second where its part of the log is compressed.

    Raises JournalError, also where another program took the line or put another task's in its place.
    """
    line = next(read(logs_dir, ASSIGNMENTS, known.line or 0), None)
    work: Work | None = None
    with suppress(DecodeError):
        work = None if line is None else Work.decode(line.data)
    if work is None or work.task_id != known.task_id:
        raise JournalError(
            f"the log of assignments in {logs_dir} does not hold task {known.task_id} at byte {known.line or 0:,} any "
            f"more: another program cut or changed it; restore the file from a copy"
        )
    return work
