"""The last samples of the log, those added since, and how a sample looks on one line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from ratchet.cli.result.logged_task import INTERACTIONS
from ratchet.logs.reader import Line, follow, read, tail_position
from ratchet.logs.segments import active_path

SHOWN_CHARS = 60

Row = dict[str, Any]


def last_rows(folder: Path, count: int, agent: str | None) -> tuple[list[tuple[str, Row]], int]:
    """The last `count` samples (of that agent), each as the line and decoded, and where the log ends."""
    window = count
    while True:
        start = tail_position(folder, INTERACTIONS, window) if window else None
        lines = list(read(folder, INTERACTIONS, start)) if start is not None else []
        rows = deque(_rows(lines, agent), maxlen=count)
        if len(rows) == count or start in (0, None) or len(lines) < window:
            break
        window *= 4
    end = lines[-1].end if lines else _end(folder)
    return list(rows), end


def follow_rows(folder: Path, start: int, agent: str | None) -> Iterator[tuple[str, Row]]:
    """What is added from there on, for ever."""
    yield from _rows(follow(folder, INTERACTIONS, start), agent)


def nothing_to_show(folder: Path, agent: str | None) -> str:
    """Where was looked, for whoever looked in the wrong place."""
    whose = f" of agent {agent!r}" if agent else ""
    return f"no samples{whose} in {active_path(folder, INTERACTIONS)} (RATCHET_LOGS_DIR says where a fleet logs)"


def render_row(row: Row) -> Text:
    """One line: time, score, agent and version, task and sample, question → answer."""
    score = row.get("score")
    shown = "  –  " if score is None else f"{score:.3f}"
    style = "dim" if score is None else "green" if score >= 0.5 else "yellow"
    sample = "" if row.get("sample") is None else f"#{row['sample']}"
    said = row["response"] if row.get("response") is not None else row.get("reason")
    return Text.assemble(
        (str(row["timestamp"])[11:19], "dim"),
        " ",
        (shown, style),
        f" {row['agent_id']} {row['adapter_version']} ",
        (f"{_short(str(row['task_id']), 18)}{sample} ", "dim"),
        f"{_short(_question(row['input']), SHOWN_CHARS)} → {_short(str(said), SHOWN_CHARS)}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _rows(lines: Iterable[Line], agent: str | None) -> Iterator[tuple[str, Row]]:
    for line in lines:
        row = json.loads(line.data)
        if agent in (None, row.get("agent_id")):
            yield line.data.decode(), row


def _end(folder: Path) -> int:
    """Where the log ends now: the end of its last line, or 0."""
    last = [line.end for line in read(folder, INTERACTIONS, tail_position(folder, INTERACTIONS, 1))]
    return last[-1] if last else 0


def _question(asked: Any) -> str:
    return asked if isinstance(asked, str) else str(asked[-1]["content"])


def _short(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
