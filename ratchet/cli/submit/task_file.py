"""Tasks from what a user typed or a JSONL file: ids and time stamps are filled in where they are missing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ratchet.cli.terminal.exit_codes import UsageError
from schemas.messages.base import DecodeError, Metadata, explain
from schemas.messages.task import Task


def new_task(fields: dict[str, Any]) -> Task:
    """A Task of these fields; those that are None are left out. Raises UsageError naming the field at fault."""
    given = {name: value for name, value in fields.items() if value is not None}
    given.setdefault("task_id", f"task-{uuid.uuid4().hex}")
    given.setdefault("metadata", Metadata(timestamp=datetime.now(UTC), source="ratchet submit"))
    try:
        return Task(**given)
    except ValidationError as error:
        raise UsageError(explain(Task.TYPE, error)) from None


def read_tasks(lines: Iterable[str], defaults: dict[str, Any]) -> Iterator[Task]:
    """One task a line: a Task as JSON, of which only `input` must be there, or a JSON string, which is the input.

    `defaults` hold for what a line does not say. Empty lines are passed over. Raises UsageError naming the line.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _read_task(line, number, defaults)


def _read_task(line: str, number: int, defaults: dict[str, Any]) -> Task:
    try:
        read = json.loads(line)
        fields = {"input": read} if isinstance(read, str) else read
        if not isinstance(fields, dict):
            raise UsageError("neither a task nor a string")
        known = {name: value for name, value in defaults.items() if value is not None}
        filled = new_task({**known, **{name: value for name, value in fields.items() if name == "input"}})
        return Task.decode(json.dumps({**json.loads(filled.encode()), **fields}))
    except (ValueError, UsageError, DecodeError) as error:
        raise UsageError(f'line {number}: {error}. A line is a task, such as {{"input": "sort: gbaec"}}') from None
