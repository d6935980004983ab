"""A task's id from its beginning, as `ratchet log tail` prints long ones."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from ratchet.logs.names import TASK_LOGS
from ratchet.logs.reader import read
from ratchet.logs.rows import SampleRow
from ratchet.service.errors import Ambiguous

CUT = "…"
MOST_NAMED = 5


def whole_id(logs_dir: Path, typed: str) -> str | None:
    """The one id in the logs that begins so; None where none does. Reads both logs, whole where it is the only one.

    To be asked where no task has just that id. Raises Ambiguous where several ids begin so.
    """
    beginning = typed.removesuffix(CUT)
    needle, decoder = json.dumps(beginning, ensure_ascii=False).encode()[:-1], msgspec.json.Decoder(SampleRow)
    found: dict[str, None] = {}
    for name in TASK_LOGS:
        for line in read(logs_dir, name):
            if needle in line.data and (task_id := decoder.decode(line.data).task_id).startswith(beginning):
                found[task_id] = None
                if len(found) > MOST_NAMED:
                    break
    if len(found) > 1:
        some = ", ".join([*list(found)[:MOST_NAMED], *([CUT] if len(found) > MOST_NAMED else [])])
        raise Ambiguous(f"several tasks begin with {beginning!r}: {some}")
    return next(iter(found), None)
