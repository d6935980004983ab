"""The last samples of the log, those added since, and how a sample looks on one line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from rich.text import Text

from ratchet.logs.names import INTERACTIONS, active_path
from ratchet.logs.reader import Line, end_of_log, follow, read, tail_position
from ratchet.logs.rows import AnswerRow, question

SHOWN_CHARS = 60


def last_rows(folder: Path, count: int, agent: str | None) -> tuple[list[tuple[str, AnswerRow]], int]:
    """The last `count` samples (of that agent), each as the line and decoded, and where the log ends."""
    window = count
    while True:
        start = tail_position(folder, INTERACTIONS, window) if window else None
        lines = list(read(folder, INTERACTIONS, start)) if start is not None else []
        rows = deque(_rows(lines, agent), maxlen=count)
        if len(rows) == count or start in (0, None) or len(lines) < window:
            break
        window *= 4
    end = lines[-1].end if lines else end_of_log(folder, INTERACTIONS)
    return list(rows), end


def follow_rows(folder: Path, start: int, agent: str | None) -> Iterator[tuple[str, AnswerRow]]:
    """What is added from there on, for ever."""
    yield from _rows(follow(folder, INTERACTIONS, start), agent)


def nothing_to_show(folder: Path, agent: str | None) -> str:
    """Where was looked, for whoever looked in the wrong place."""
    whose = f" of agent {agent!r}" if agent else ""
    return f"no samples{whose} in {active_path(folder, INTERACTIONS)} (RATCHET_LOGS_DIR says where a fleet logs)"


def render_row(row: AnswerRow) -> Text:
    """One line: time, score, agent and version, task and sample, question → answer."""
    shown = "  –  " if row.score is None else f"{row.score:.3f}"
    style = "dim" if row.score is None else "green" if row.score >= 0.5 else "yellow"
    sample = "" if row.sample is None else f"#{row.sample}"
    said = row.response if row.response is not None else row.reason
    return Text.assemble(
        (row.timestamp[11:19], "dim"),
        " ",
        (shown, style),
        f" {row.agent_id} {row.adapter_version} ",
        (f"{_short(row.task_id, 18)}{sample} ", "dim"),
        f"{_short(question(row.input), SHOWN_CHARS)} → {_short(str(said), SHOWN_CHARS)}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _rows(lines: Iterable[Line], agent: str | None) -> Iterator[tuple[str, AnswerRow]]:
    decoder = msgspec.json.Decoder(AnswerRow)
    for line in lines:
        row = decoder.decode(line.data)
        if agent in (None, row.agent_id):
            yield line.data.decode(), row


def _short(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
