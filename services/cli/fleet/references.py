"""Tells whoever gives a task's reference whether the fleet that was started here has any use for it.

Of a fleet that is elsewhere nothing is known, and of a scorer that is somebody else's program neither: no word then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from schemas.messages.task import Task
from services.cli.fleet.folder import FleetRecord
from services.cli.terminal import say


def noting_references(tasks: Iterable[Task], record: FleetRecord | None) -> Iterator[Task]:
    """The tasks; at the first with a reference that no scorer of the fleet looks at that is said, once."""
    said = False
    for task in tasks:
        if not said and task.reference is not None and (note := unused_reference(record)):
            said = True
            say(note)
        yield task


def unused_reference(record: FleetRecord | None) -> str | None:
    """A sentence where neither scorer nor auditor looks at references."""
    if record is None or record.options.no_scorer:
        return None
    scorers = [text for text in (record.options.scorer, record.options.auditor) if text]
    if any(map(_looks_at_references, scorers)):
        return None
    return (
        f"note: scorer `{record.options.scorer}` does not look at the reference; "
        "`ratchet up --scorer verifier:exact` does"
    )


def _looks_at_references(scorer: str) -> bool:
    specification: Any = import_module("services.scorer.spec")  # where scorers say so; loads none of them
    return bool(specification.parse_spec(scorer).looks_at_references)
