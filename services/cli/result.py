"""`ratchet result`: the answer to a task submitted earlier, from the log, whose newest segments are read first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from json import loads as json_of
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from ratchet.logs.best_answer import came_to_nothing, choose_answer, ends_told
from ratchet.logs.groups import Groups
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, TASK_LOGS
from ratchet.logs.reader import LogReader, read
from ratchet.logs.rows import AnswerRow, ForeignRow, SampleRow, ToolAuditRow
from ratchet.logs.segments import sealed_end, sealed_segments
from ratchet.service.errors import Ambiguous, TimedOut
from ratchet.service.prices import units
from schemas.messages.response import ForeignPart, ToolAudit
from schemas.messages.result import RolloutEnd
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess
from services.cli.terminal import CommandError, print_answer, print_json, say

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


def result(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it, or its beginning.")],
    json: Annotated[bool, typer.Option("--json", help="Every logged sample, as JSON.")] = False,
) -> None:
    task_id, task = logged_task(task_id)
    _print(task, task_id, as_json=json)


def logged_task(task_id: str) -> tuple[str, LoggedTask]:
    """Return a task by its id or the beginning of it, with its whole id. Raises CommandError."""
    access = FleetAccess.here()
    task = find_task(access.logs_dir, task_id)
    if task is None and (whole := whole_id(access.logs_dir, task_id)):
        task_id, task = whole, find_task(access.logs_dir, whole)
    if task is None:
        raise CommandError(
            f"no task {task_id!r} in {access.logs_dir}: mistyped, still in the queue `tasks`, refused (ratchet "
            f"dead-letters list says why), or of a fleet that logs elsewhere (RATCHET_LOGS_DIR); {FROM_ELSEWHERE}"
        )
    return task_id, task


def _print(task: LoggedTask, task_id: str, *, as_json: bool) -> None:
    if as_json:
        samples = [json_of(line.data) for line in task.lines]
        print_json({"task_id": task_id, "open": not samples, "samples": samples})
    if not task.lines:
        raise TimedOut(f"task {task_id} is admitted and not answered yet: `ratchet status` shows whether all is well")
    answer = task.chosen
    if answer.status != "ok":
        raise CommandError(f"task {task_id} {answer.status}: {answer.reason}")
    if (nothing := came_to_nothing([line.row for line in task.lines])) is not None:
        raise CommandError(f"task {task_id} failed: {nothing}")
    if not as_json:
        print_answer(answer.response or "")
        score = "none" if answer.score is None else f"{answer.score:.3f}"
        which = f"sample {answer.sample} of {len(task.lines)} (counted from 0)"
        say(f"score {score} · {answer.agent_id} {answer.adapter_version} · {which}")
        for role, taken in (answer.usage.roles if answer.usage else {}).items():
            say(f"{role} {taken.adapter_version} · {taken.calls} calls · {taken.sampled_tokens} tokens")
        for part in answer.foreign or ():
            say(format_foreign(part))
        if answer.tool_audit is not None:
            say(format_tools(answer.tool_audit))
        for sentence in ends_told(map(_end, (line.row for line in task.lines))):
            say(sentence)


def format_foreign(part: ForeignRow | ForeignPart) -> str:
    """Return a line of what a model of another provider took."""
    cost = "no price is known" if part.cost_micros is None else f"cost {units(part.cost_micros)}"
    return f"{part.role} {part.model}: {part.calls} calls, {part.sampled_tokens} tokens, {cost}"


def format_tools(audit: ToolAuditRow | ToolAudit) -> str:
    """Return a line of what a rollout did with our tools."""
    did = ", ".join(f"{name} {times}" for name, times in sorted(audit.operations.items())) or "none"
    parts = [f"tools: {did}", *(f"{count} {how}" for how in ("failed", "refused") if (count := getattr(audit, how)))]
    parts += [f"changed {', '.join(audit.changed)}"] if audit.changed else []
    parts += [f"commits {', '.join(one[:12] for one in audit.commits)}"] if audit.commits else []
    return " · ".join(parts)


def _end(row: AnswerRow) -> RolloutEnd:
    told = {"status": row.sample_status or "finished", "program": row.program, "says": row.sample_says}
    return RolloutEnd.from_valid({"sample": row.sample or 0} | told)


class LoggedLine(NamedTuple):
    row: AnswerRow
    data: bytes


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """`lines` are the task's in the log of interactions, one per sample; with none it is still open."""

    lines: tuple[LoggedLine, ...]

    @property
    def chosen(self) -> AnswerRow:
        """The line whose sample the user got."""
        return choose_answer([line.row for line in self.lines])


def find_task(logs_dir: Path, task_id: str) -> LoggedTask | None:
    """None if neither log knows the id. Raises JournalError for a log that can't be read."""
    if found := _newest_part_with(logs_dir, INTERACTIONS, task_id):
        return LoggedTask(tuple(_each_sample_once(found)))
    return LoggedTask(()) if _newest_part_with(logs_dir, ASSIGNMENTS, task_id) else None


def _newest_part_with(logs_dir: Path, name: str, task_id: str) -> list[LoggedLine]:
    """A task's lines lie close together: the search ends with the first segment, from the newest, that has any."""
    segments = sealed_segments(logs_dir, name)
    starts = sorted({sealed_end(segments), *(segment.start for segment in segments)})
    ends = [*starts[1:], None]
    found: list[LoggedLine] = []
    for start, end in reversed(list(zip(starts, ends, strict=True))):
        here = list(_lines(logs_dir, name, start, end, task_id))
        if found and not here:
            break
        found = here + found
    return found


def _lines(logs_dir: Path, name: str, start: int, end: int | None, task_id: str) -> Iterator[LoggedLine]:
    needle, decoder = json.dumps(task_id, ensure_ascii=False).encode(), msgspec.json.Decoder(AnswerRow)
    for line in LogReader(logs_dir, name, start, on_bad=lambda bad: None).lines():
        if end is not None and line.position >= end:
            return
        if needle in line.data and (row := decoder.decode(line.data)).task_id == task_id:
            yield LoggedLine(row, line.data)


def _each_sample_once(lines: list[LoggedLine]) -> Iterator[LoggedLine]:
    groups = Groups[str, LoggedLine]()
    for line in lines:
        yield from groups.add(line.row.task_id, line.row.sample, len(lines) + 1, line) or ()
    for _, group in groups.rest():
        yield from group
