"""`ratchet log`: the end of the log of answers and what is added to it, one task of it, and what may go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ratchet.logs.follower import read_follower_note
from ratchet.logs.leadership import UNFENCED, Fence, Leadership
from ratchet.logs.names import INTERACTIONS, active_path, is_own
from ratchet.logs.reader import Line, LogReader, end_of_log, file_starts, read, tail_position
from ratchet.logs.reader import follow as follow_log
from ratchet.logs.retention.contents import newest_time
from ratchet.logs.retention.needs import needs
from ratchet.logs.retention.plan import Bound
from ratchet.logs.retention.pruner import Pruned, Pruner
from ratchet.logs.rows import AnswerRow, question
from ratchet.logs.segments import Position
from ratchet.logs.trajectories import TrajectoryFolder
from ratchet.service.errors import NotFound
from ratchet.service.settings import FleetSettings
from services.cli.conversation_view import logged_lines, render_task
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess
from services.cli.result import whole_id
from services.cli.terminal import AsJson, CommandError, out, print_json, print_raw, say

log = typer.Typer()


@log.command()
def tail(
    count: Annotated[int, typer.Option("-n", min=0, help="Samples to show.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; Ctrl-C ends it.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    golden: Annotated[
        bool, typer.Option("--golden", help="Also of the fleet's own tasks: golden ones, anchors and evaluations.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="The lines as they are in the log, the fleet's own among them.")
    ] = False,
) -> None:
    """Show the newest samples of users' tasks in the log: when, score, adapter version, question and answer."""
    folder = FleetAccess.here().logs_dir
    own = golden or json
    rows, end = last_rows(folder, count, agent, own=own)
    if count and not rows:
        say(nothing_to_show(folder, agent) + ("" if own else "; --golden shows the fleet's own, too"))
    try:
        for line, row in rows:
            print_raw(line) if json else out.print(render_row(row), soft_wrap=False)
        added = _rows(follow_log(folder, INTERACTIONS, end), agent, own=own) if follow else ()
        for line, row in added:
            print_raw(line) if json else out.print(render_row(row), soft_wrap=False)
    except KeyboardInterrupt:
        return


@log.command()
def show(
    task: Annotated[str, typer.Argument(help="Its id, or the beginning of it.", metavar="TASK")],
    sample: Annotated[
        int | None, typer.Option(min=0, help="Only this one of its samples, counted from 0 as in the log.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The lines as they are in the log.")] = False,
) -> None:
    """Show one task as it was logged: its conversations turn by turn, tokens, breaks, how each rollout ended."""
    folder = FleetAccess.here().logs_dir
    lines = logged_lines(folder, task)
    if not lines and (whole := whole_id(folder, task)):
        task, lines = whole, logged_lines(folder, whole)
    found = [(line, row) for line, row in lines if sample in (None, row.sample)]
    if not lines:
        raise NotFound(f"no task {task!r} in {active_path(folder, INTERACTIONS)} and what is sealed beside it")
    if not found:
        there = ", ".join(str(row.sample) for _, row in lines if row.sample is not None)
        raise NotFound(f"task {task!r} has no sample {sample}: it has {there or 'none'}, counted from 0")
    if json:
        for line, _ in found:
            print_raw(line)
        return
    for text in render_task([row for _, row in found], folder):
        out.print(text)


@log.command()
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go, and what keeps the rest.")
    ] = False,
    keep_gb: Annotated[
        float | None, typer.Option(min=0, help="Room for both; RATCHET_LOG_KEEP_GB if not named.")
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option(min=0, help="Before the newest line; RATCHET_LOG_KEEP_DAYS if not named.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Remove the oldest sealed segments of the logs that are over their bound, with the fleet down.

    A running orchestrator does this by itself. What an open task, a running experiment or a training needs stays. The
    tasks removed are remembered by the sums of their ids, so that none of them is run again.
    """
    settings = FleetSettings.read()
    bound = Bound.of(
        settings.log_keep_gb if keep_gb is None else keep_gb, settings.log_keep_days if keep_days is None else keep_days
    )
    logs_dir = FleetAccess.here().logs_dir
    pruned = pruned_now(logs_dir, settings.index_dir or logs_dir, settings.adapters_dir, bound, dry=dry_run)
    if json:
        print_json(as_dict(pruned, dry=dry_run))
        return
    for sentence in sentences(pruned, dry=dry_run):
        out.print(sentence, markup=False)


SHOWN_CHARS = 60


def last_rows(
    folder: Path, count: int, agent: str | None, *, own: bool = True
) -> tuple[list[tuple[str, AnswerRow]], int]:
    """The last `count` samples (of that agent), each as the line and decoded, and where the log ends.

    No more than these are held in memory, however far back they lie.
    """
    if not count:
        return [], end_of_log(folder, INTERACTIONS)
    reader = LogReader(folder, INTERACTIONS, begin := tail_position(folder, INTERACTIONS, count))
    rows = deque(_rows(reader.lines(), agent, own=own), maxlen=count)
    for start in file_starts(folder, INTERACTIONS):
        if start < begin and len(rows) < count:
            before = _rows(_lines_between(folder, start, begin), agent, own=own)
            rows.extendleft(reversed(deque(before, maxlen=count - len(rows))))
            begin = start
    return list(rows), reader.position


def _lines_between(folder: Path, start: Position, stop: Position) -> Iterator[Line]:
    for line in read(folder, INTERACTIONS, start):
        if line.position >= stop:
            return
        yield line


def nothing_to_show(folder: Path, agent: str | None) -> str:
    """Say where the command looked, for whoever looked in the wrong place."""
    whose = f" of agent {agent!r}" if agent else ""
    where = active_path(folder, INTERACTIONS)
    return f"no samples{whose} in {where} (RATCHET_LOGS_DIR says where a fleet logs; {FROM_ELSEWHERE})"


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


def _rows(lines: Iterable[Line], agent: str | None, *, own: bool) -> Iterator[tuple[str, AnswerRow]]:
    decoder = msgspec.json.Decoder(AnswerRow)
    for line in lines:
        row = decoder.decode(line.data)
        if agent in (None, row.agent_id) and (own or not is_own(row.arm.experiment_id)):
            yield line.data.decode(), row


def _short(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def pruned_now(logs_dir: Path, index_dir: Path, adapters_dir: Path, bound: Bound, *, dry: bool) -> Pruned:
    """Ages are counted from the newest line, should the clock be ahead of it.

    Raises CommandError where an orchestrator works, unless `dry`; JournalError, RegistryError, DiskFull.
    """
    with _leading(logs_dir, dry=dry) as fence:
        now = datetime.now(UTC)
        present = min(now, newest_time(logs_dir) or now)
        if not dry:
            TrajectoryFolder(logs_dir, fence).sweep()
        followed = read_follower_note(logs_dir)
        found = needs(index_dir, adapters_dir, followed.fleet if followed else 0)
        return Pruner(logs_dir, bound, fence).prune(found, present, dry=dry)


def as_dict(pruned: Pruned, *, dry: bool) -> dict[str, Any]:
    return {
        "dry_run": dry,
        "removed": [
            {
                "file": part.segment.path.name,
                "bytes": part.disk_bytes,
                "from": part.first_at.isoformat(),
                "to": part.last_at.isoformat(),
            }
            for part in pruned.removed
        ],
        "held": pruned.held and {"file": pruned.held.part.segment.path.name, "why": pruned.held.why},
        "bytes_left": pruned.disk_bytes,
    }


def sentences(pruned: Pruned, *, dry: bool) -> Iterator[str]:
    done = "would go" if dry else "gone"
    for part in pruned.removed:
        lines = f"lines of {part.first_at:%F %R} to {part.last_at:%F %R}"
        yield f"{done}: {part.segment.path.name} ({part.disk_bytes / 1e6:,.1f} MB, {lines})"
    if pruned.held is not None:
        yield f"stays: {pruned.held.part.segment.path.name} and what came after it: {pruned.held.why}"
    if not pruned.removed:
        yield "nothing to remove" if pruned.held is None else "nothing can be removed"
    yield f"{'would be left' if dry else 'left'}: {pruned.disk_bytes / 1e6:,.1f} MB of logs"


@contextmanager
def _leading(logs_dir: Path, *, dry: bool) -> Iterator[Fence]:
    if dry:
        yield UNFENCED
        return
    leadership = Leadership(logs_dir)
    if not leadership.try_lead():
        raise CommandError(
            f"the orchestrator of {leadership.holder()} keeps {logs_dir} within its bound by itself, twice a minute. "
            f"To have it remove more, lower RATCHET_LOG_KEEP_GB or RATCHET_LOG_KEEP_DAYS and restart it; --dry-run "
            f"only looks"
        )
    try:
        yield leadership
    finally:
        leadership.release()
