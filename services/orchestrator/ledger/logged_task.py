"""One task as the logs have it, at the places that the index knows. Reading blocks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ratchet.logs.groups import group_by_task
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.reader import decode_lines, read
from ratchet.service.errors import JournalError
from schemas.messages.base import DecodeError
from schemas.messages.work import Work
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.index import Entry


def logged_work(logs_dir: Path, known: Entry) -> Work:
    """The Work of a task as it was logged at its admission: what is true of it, whatever a message says.

    Blocks: up to half a second where its part of the log is compressed. Raises JournalError, also where another
    program took the line or put another task's in its place.
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


def logged_lines(logs_dir: Path, known: Entry) -> list[Interaction]:
    """All of a closed task's, which lie together, save where a kill cut them; where samples came late, these."""
    lines = read(logs_dir, INTERACTIONS, known.lines or 0, on_bad=lambda bad: None)
    of_task = (one for one in decode_lines((line.data for line in lines), Interaction) if one.task_id == known.task_id)
    groups = group_by_task(of_task, incomplete=True)
    return next((group for group in groups if known.logged == 0 or group[0].sample is not None), [])
