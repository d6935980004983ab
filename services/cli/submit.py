"""`ratchet submit`: give the fleet one task or a file of them, and print the answers."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from pydantic import ValidationError

from ratchet.client import Fleet
from ratchet.logs.best_answer import FIRST_PASSING, ends_told
from schemas.messages.base import DecodeError, Metadata, explain
from schemas.messages.result import Result
from schemas.messages.task import Task
from services.cli.constrain import Constrain, constraints_of
from services.cli.fleet.folder import FleetAccess, FleetFolder
from services.cli.fleet.own_fleet import noting_references
from services.cli.harbor import read_tasks as read_harbor
from services.cli.terminal import (
    INTERRUPTED,
    ExitCode,
    UsageError,
    answered_bar,
    print_answer,
    print_raw,
    say,
    say_error,
)

LINES_NAMED = 5
OPTIONS = {
    "agent_id": "--agent",
    "reference": "--reference",
    "criteria": "--criteria",
    "samples": "--samples",
    "select": "--select",
    "pass_score": "--pass-score",
    "priority": "--priority",
    "task_id": "--task-id",
    "deadline": "--deadline",
    "constraints": "--constrain",
}
"""Options by the field of a task that each fills."""


def submit(
    text: Annotated[str | None, typer.Argument(help="What to ask; - reads it from stdin.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Tasks as JSONL, one a line; - reads them from stdin. Options hold for what a line leaves out."
        ),
    ] = None,
    harbor: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A task in the form of Harbor, or a folder of such tasks.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --file: write the results here, not to stdout.")] = None,
    agent: Annotated[str | None, typer.Option(help="Which agent answers.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="The right answer, for scorers that verify (not `likelihood`).")
    ] = None,
    criteria: Annotated[str | None, typer.Option(help="What a good answer is, for scorers that judge.")] = None,
    samples: Annotated[int | None, typer.Option(help="Answers to sample; one of them comes back.")] = None,
    select: Annotated[
        str | None, typer.Option(help="Which: best (if not given), majority, judge or first-passing.")
    ] = None,
    pass_score: Annotated[
        float | None, typer.Option(help="With --select first-passing: the score that passes; 1.0 if not given.")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="0 to 9; 5 and above overtakes what waits below.")] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Seconds from now after which it is no longer wanted.")
    ] = None,
    constrain: Constrain = None,
    task_id: Annotated[str | None, typer.Option(help="Your own id; the same id again gets the same answer.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait for the answer; --no-wait prints the task id and returns.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds without any answer after which to stop waiting.")
    ] = 300.0,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    if sum(given is not None for given in (text, file, harbor)) != 1:
        raise typer.BadParameter('give a text, --file or --harbor: ratchet submit "sort: gbaec"')
    if file and (task_id or reference):
        raise typer.BadParameter("--task-id and --reference belong to one task: write them into the file's lines")
    fields: dict[str, Any] = {"agent_id": agent, "reference": reference, "criteria": criteria, "samples": samples}
    fields |= {"select": select, "pass_score": pass_score, "constraints": constraints_of(constrain)}
    fields |= {"priority": priority, "task_id": task_id, "deadline": moment_in(deadline)}
    submission = Submission(wait=wait, timeout_s=timeout, as_json=json)
    if harbor is not None:
        submit_harbor(harbor, fields, out, submission)
    elif file is not None:
        submit_file(file, fields, out, submission)
    else:
        asked = sys.stdin.read().strip() if text == "-" else text
        _submit_single(new_task({**fields, "input": asked}), submission)


def moment_in(seconds: float | None) -> datetime | None:
    """Return the moment so many seconds from now."""
    return None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)


def new_task(fields: dict[str, Any]) -> Task:
    """A Task of these fields; those that are None are left out. Raises UsageError naming the field at fault."""
    given = {name: value for name, value in fields.items() if value is not None}
    given.setdefault("task_id", f"task-{uuid.uuid4().hex}")
    given.setdefault("metadata", Metadata(timestamp=datetime.now(UTC), source="ratchet submit"))
    try:
        return Task(**given)
    except ValidationError as error:
        raise UsageError(explain(Task.TYPE, error)) from None


class Overruled:
    """The fields that lines of a file say for themselves although an option says something else: by field, which lines.
    And what they call a field that a task does not have, which is passed over."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, None]] = {}
        self._unknown: dict[str, dict[int, None]] = {}

    def note(self, line: int, fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        for name in fields.keys() & defaults.keys():
            if defaults[name] is not None and fields[name] != defaults[name]:
                self._lines.setdefault(name, {})[line] = None
        for name in fields.keys() - Task.model_fields.keys():
            self._unknown.setdefault(name, {})[line] = None

    def __iter__(self) -> Iterator[str]:
        """A sentence for each option."""
        for name, lines in sorted(self._lines.items()):
            some = _some(lines)
            which = (
                f"{len(lines)} lines name {name} themselves" if len(lines) > 1 else f"line {some} names {name} itself"
            )
            where = f" (lines {some})" if len(lines) > 1 else ""
            yield f"note: {which}, and that counts{where}; {OPTIONS[name]} holds for the others"
        for name, lines in sorted(self._unknown.items()):
            near = get_close_matches(name, Task.model_fields, n=1)
            meant = f": is {near[0]!r} meant?" if near else ""
            yield f"warning: a task has no field {name!r} (line{'s' * (len(lines) > 1)} {_some(lines)}){meant}"


def _some(lines: Iterable[int]) -> str:
    first = list(islice(lines, LINES_NAMED + 1))
    return ", ".join([*map(str, first[:LINES_NAMED]), *(["…"] if len(first) > LINES_NAMED else [])])


def read_tasks(lines: Iterable[str], defaults: dict[str, Any], overruled: Overruled | None = None) -> Iterator[Task]:
    """One task a line: a Task as JSON, of which only `input` must be there, or a JSON string, which is the input.

    `defaults` hold for what a line does not say, or says is null; `overruled` is told of lines that say something else.
    Empty lines are passed over. Raises UsageError naming the line.
    """
    told = overruled or Overruled()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _read_task(line, number, defaults, told)


def _read_task(line: str, number: int, defaults: dict[str, Any], overruled: Overruled) -> Task:
    try:
        read = json.loads(line)
        fields = {"input": read} if isinstance(read, str) else read
        if not isinstance(fields, dict):
            raise UsageError("neither a task nor a string")
        fields = {name: value for name, value in fields.items() if value is not None}
        overruled.note(number, fields, defaults)
        known = {name: value for name, value in defaults.items() if value is not None}
        if fields.get("select", FIRST_PASSING) != FIRST_PASSING:
            known.pop("pass_score", None)  # a part of the option that the line overrules
        filled = new_task({**known, **{name: value for name, value in fields.items() if name == "input"}})
        return Task.decode(json.dumps({**json.loads(filled.encode()), **fields}))
    except (ValueError, UsageError, DecodeError) as error:
        raise UsageError(f'line {number}: {error}. A line is a task, such as {{"input": "sort: gbaec"}}') from None


@dataclass(frozen=True, slots=True)
class Submission:
    wait: bool
    timeout_s: float
    as_json: bool


@dataclass
class Tally:
    """The outcome of the tasks of a file."""

    ok: int = 0
    failed: int = 0
    scores: list[float] = field(default_factory=list)

    def count(self, result: Result) -> None:
        self.ok += result.status == "ok"
        self.failed += result.status != "ok"
        if result.score is not None:
            self.scores.append(result.score)

    def __str__(self) -> str:
        mean = f", mean score {sum(self.scores) / len(self.scores):.3f}" if self.scores else ""
        return f"{self.ok} answered, {self.failed} failed{mean}"


def _submit_single(task: Task, how: Submission) -> None:
    """Raises Exit 1 for a task that was not answered."""
    tasks = noting_references([task], FleetFolder.here().record())
    if not how.wait:
        _publish(tasks, how)
        print_raw(task.task_id)
        return
    with FleetAccess.here().client(stall_s=how.timeout_s) as client, _interruptible(client):
        result = next(client.batch(tasks))
    _print_one(result, how)
    if result.status != "ok":
        raise typer.Exit(ExitCode.FAILED)


def submit_file(file: Path, fields: dict[str, Any], out: Path | None, how: Submission) -> None:
    """A file is checked whole before its first task is published. Raises Exit 1 if a task was not answered."""
    overruled = Overruled()
    total = None if str(file) == "-" else sum(1 for _ in _tasks(file, fields, overruled))
    _say_all(overruled)
    try:
        tasks = noting_references(_tasks(file, fields, overruled), FleetFolder.here().record())
        _submit(tasks, out, how, total)
    finally:
        if total is None:  # of what comes in on stdin it is known in the end
            _say_all(overruled)


def submit_harbor(folder: Path, fields: dict[str, Any], out: Path | None, how: Submission) -> None:
    """A folder is checked whole before its first task is published. Raises UsageError, Exit 1 as `submit_file` does."""
    lines = [json.dumps(one.line) for one in read_harbor(folder)]
    tasks = list(read_tasks(lines, fields))
    if len(tasks) == 1 and out is None:
        _submit_single(tasks[0], how)
    else:
        _submit(noting_references(tasks, FleetFolder.here().record()), out, how, len(tasks))


def _say_all(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(sentence)


def _submit(tasks: Iterator[Task], out: Path | None, how: Submission, total: int | None) -> None:
    if not how.wait:
        say(f"{_publish(tasks, how)} tasks published")
        return
    tally = Tally()
    target = nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8")
    with target as stream, FleetAccess.here().client(stall_s=how.timeout_s) as client, _interruptible(client):
        _write_results(client.batch(tasks), stream, tally, total)
    say(str(tally))
    if tally.failed:
        raise typer.Exit(ExitCode.FAILED)


def _tasks(file: Path, fields: dict[str, Any], overruled: Overruled) -> Iterator[Task]:
    if str(file) == "-":
        yield from read_tasks(sys.stdin, fields, overruled)
        return
    try:
        with file.open(encoding="utf-8") as lines:
            yield from read_tasks(lines, fields, overruled)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} can't be read: {error}") from None


def _publish(tasks: Iterable[Task], how: Submission) -> int:
    with FleetAccess.here().client(stall_s=how.timeout_s, replies=False) as client:
        return client.submit_all(tasks)


def _write_results(results: Iterator[Result], stream: TextIO, tally: Tally, total: int | None) -> None:
    with answered_bar() as progress:
        bar = progress.add_task("answered", total=total)
        for result in results:
            tally.count(result)
            stream.write(result.encode().decode() + "\n")
            progress.advance(bar)
        stream.flush()


def _print_one(result: Result, how: Submission) -> None:
    if how.as_json:
        print_raw(result.encode().decode())
    elif result.status == "ok":
        print_answer(result.response or "")
        score = "none" if result.score is None else f"{result.score:.3f}"
        votes = f" · {result.votes} say so" if result.votes else ""
        say(f"score {score}{votes} · {result.agent_id} {result.adapter_version} · {result.task_id}")
        if result.reason:
            say(result.reason)
        _say_all(ends_told(result.rollouts or ()))
    else:
        say_error(f"{result.status}: {result.reason or 'no reason given'} ({result.task_id})")


@contextmanager
def _interruptible(client: Fleet) -> Iterator[None]:
    """Ctrl-C stops the waiting, not the tasks."""
    try:
        yield
    except KeyboardInterrupt:
        left = client.open_tasks
        if left:
            say(f"\n{len(left)} tasks go on without you. Their answers: ratchet result {left[0]}  (… {left[-1]})")
        raise typer.Exit(INTERRUPTED) from None
