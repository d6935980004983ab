"""The list of tasks, the newest first, out of the index: read in a thread, over a connection of its own.

What a page costs does not grow with the number of tasks. It shows what the orchestrator had committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ratchet.logs.names import ASSIGNMENTS, OWN_TASKS
from ratchet.logs.rows import WorkRow, question
from ratchet.logs.source import Source, open_source
from ratchet.logs.tenants import key_beginning
from ratchet.service.errors import JournalError
from ratchet.service.telemetry import Log
from schemas.api.tasks import TaskSummary
from schemas.messages.result import Result
from services.orchestrator.ledger.index import ENDINGS, TENANT_IS

StateFilter = Literal["open", "closed", "ok", "failed", "expired", "cancelled"]

log = Log("task-list")

SHOWN_CHARS = 200
MOST_SCANNED = 2_000
"""Tasks looked at for one page where an agent is named: the page may then be short, and still have a next one."""
NEWEST = (1 << 63) - 1

_WHERE: dict[StateFilter | None, str] = {
    None: "tasks WHERE sequence < ?",
    "open": "tasks INDEXED BY open_tasks WHERE result IS NULL AND sequence < ?",
    "closed": "tasks WHERE result IS NOT NULL AND sequence < ?",
    "ok": "tasks WHERE ended = 0 AND sequence < ?",
    "failed": "tasks INDEXED BY unanswered_tasks WHERE ended > 0 AND ended = 1 AND sequence < ?",
    "expired": "tasks INDEXED BY unanswered_tasks WHERE ended > 0 AND ended = 2 AND sequence < ?",
    "cancelled": "tasks INDEXED BY unanswered_tasks WHERE ended > 0 AND ended = 3 AND sequence < ?",
}


_USERS = "".join(f" AND task_id NOT GLOB '{prefix}*'" for prefix in OWN_TASKS)


class TaskRow(NamedTuple):
    sequence: int
    task_id: str
    logged: int
    work: bytes | None
    result: bytes | None
    line: int | None
    ended: int | None


class TaskPage(NamedTuple):
    """`next`: only tasks with a lower sequence number are on the next page; None at the end."""

    items: list[TaskSummary]
    next: int | None


def task_page(
    index: Path,
    logs_dir: Path,
    *,
    limit: int,
    before: int | None = None,
    state: StateFilter | None = None,
    agent_id: str | None = None,
    own: bool = True,
    owner: str | None = None,
    tenant: str | None = None,
) -> TaskPage:
    """`before`: the place that the page before named. `own`: with the fleet's own. `owner`, `tenant`: whose alone.

    Raises JournalError.
    """
    scanned = limit if agent_id is None else MOST_SCANNED
    rows = _rows(index, state, NEWEST if before is None else before, scanned + 1, own=own, owner=owner, tenant=tenant)
    kept = [row for row in rows[:scanned] if agent_id in (None, _agent_of(row))]
    shown = kept[:limit]
    if len(kept) > limit:
        following: int | None = shown[-1].sequence
    else:
        following = rows[scanned - 1].sequence if len(rows) > scanned else None
    questions = dict(_works(logs_dir, [row for row in shown if row.work is None]))
    items = [summary(row, row.work or questions.get(row.sequence), blind=owner is not None) for row in shown]
    return TaskPage(items, following)


def summary(row: TaskRow, work: bytes | None, *, blind: bool = False) -> TaskSummary:
    """`work`: where it was at hand. `blind`: without the version that an open task was assigned to."""
    asked = msgspec.json.decode(work, type=WorkRow) if work else WorkRow()
    result = Result.decode(row.result) if row.result else Result(task_id=row.task_id)
    state = next((name for name, number in ENDINGS.items() if number == row.ended), "open")
    return TaskSummary(
        task_id=row.task_id,
        sequence=row.sequence,
        state=state,
        agent_id=result.agent_id or asked.agent_id,
        adapter_version=result.adapter_version or (None if blind and state == "open" else asked.arm.adapter_version),
        score=result.score,
        samples=row.logged,
        reason=result.reason,
        admitted_at=asked.admitted_at,
        closed_at=result.metadata.timestamp,
        input=_beginning(question(asked.input)) if work else None,
        response=None if result.response is None else _beginning(result.response),
    )


def _rows(
    index: Path, state: StateFilter | None, before: int, limit: int, *, own: bool, owner: str | None, tenant: str | None
) -> list[TaskRow]:
    """Tasks in the order of sequence numbers, the highest first; all open tasks are gone through for a page of them."""
    chosen = _WHERE[state] + ("" if own else _USERS)
    parameters: list[int | str] = [before]
    if owner is not None:
        chosen, parameters = f"{chosen} AND owner = ?", [*parameters, owner]
    if tenant is not None:
        chosen, parameters = f"{chosen} AND {TENANT_IS} = ?", [*parameters, key_beginning(tenant)]
    query = f"SELECT {', '.join(TaskRow._fields)} FROM {chosen} ORDER BY sequence DESC LIMIT ?"
    try:
        with closing(sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return [TaskRow(*row) for row in db.execute(query, (*parameters, limit))]
    except sqlite3.Error as error:
        raise JournalError(f"the index {index} can't be read now ({error}): try again") from None


def _works(logs_dir: Path, rows: Sequence[TaskRow]) -> Iterator[tuple[int, bytes]]:
    """The Works of those closed tasks that lie in the newest file any of them is in, unless that is compressed."""
    places = [(row.line, row.sequence) for row in rows if row.line is not None]
    source = _source(logs_dir, max(places)[0]) if places else None
    if source is None:
        return
    with source.stream:
        if source.path.suffix == ".zst":
            return
        for line, sequence in sorted(places):
            if line >= source.start:
                source.stream.seek(line - source.start)
                yield sequence, source.stream.readline()


def _source(logs_dir: Path, line: int) -> Source | None:
    """None also for a log that can't be read: the list stands without what only the log has."""
    try:
        return open_source(logs_dir, ASSIGNMENTS, line)
    except JournalError as error:
        log.warning("list-without-log", f"the list of tasks is shown without their questions: {error}")
        return None


def _agent_of(row: TaskRow) -> str | None:
    """A Result names it as a Work does."""
    body = row.result or row.work
    return msgspec.json.decode(body, type=WorkRow).agent_id if body else None


def _beginning(text: str) -> str:
    flat = " ".join(text[: 4 * SHOWN_CHARS].split())
    return flat if len(flat) <= SHOWN_CHARS else flat[: SHOWN_CHARS - 1] + "…"
