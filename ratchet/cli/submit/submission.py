"""What `ratchet submit` does once its options are read: publish, wait, print, and say by its exit code how it went."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ratchet.cli.fleet.access import FleetAccess
from ratchet.cli.submit.client import FleetClient
from ratchet.cli.submit.task_file import new_task, read_tasks
from ratchet.cli.terminal.console import err, print_raw, say, say_error
from ratchet.cli.terminal.exit_codes import ExitCode, UsageError
from ratchet.cli.terminal.faults import INTERRUPTED
from schemas.messages.result import Result
from schemas.messages.task import Task


@dataclass(frozen=True, slots=True)
class Submission:
    wait: bool
    timeout_s: float
    as_json: bool


@dataclass
class Tally:
    """How the tasks of a file went."""

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


def submit_one(text: str, fields: dict[str, Any], how: Submission) -> None:
    """Raises Exit 1 for a task that was not answered."""
    task = new_task({**fields, "input": sys.stdin.read().strip() if text == "-" else text})
    if not how.wait:
        _publish([task], how)
        print_raw(task.task_id)
        return
    with _client() as client, _interruptible(client):
        result = next(client.submit([task], stall_s=how.timeout_s))
    _print_one(result, how)
    if result.status != "ok":
        raise typer.Exit(ExitCode.FAILED)


def submit_file(file: Path, fields: dict[str, Any], out: Path | None, how: Submission) -> None:
    """A file is checked whole before its first task is published. Raises Exit 1 if a task was not answered."""
    total = None if str(file) == "-" else sum(1 for _ in _tasks(file, fields))
    if not how.wait:
        say(f"{_publish(_tasks(file, fields), how)} tasks published")
        return
    tally = Tally()
    target = nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8")
    with target as stream, _client() as client, _interruptible(client):
        _write_results(client.submit(_tasks(file, fields), stall_s=how.timeout_s), stream, tally, total)
    say(str(tally))
    if tally.failed:
        raise typer.Exit(ExitCode.FAILED)


def _tasks(file: Path, fields: dict[str, Any]) -> Iterator[Task]:
    if str(file) == "-":
        yield from read_tasks(sys.stdin, fields)
        return
    try:
        with file.open(encoding="utf-8") as lines:
            yield from read_tasks(lines, fields)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} can't be read: {error}") from None


def _client(*, replies: bool = True) -> FleetClient:
    access = FleetAccess.here()
    return FleetClient(access.amqp_url, access.namespace, replies=replies)


def _publish(tasks: Iterable[Task], how: Submission) -> int:
    with _client(replies=False) as client:
        return client.publish(tasks, stall_s=how.timeout_s)


def _write_results(results: Iterator[Result], stream: TextIO, tally: Tally, total: int | None) -> None:
    columns = (TextColumn("answered"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
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
        print_raw(result.response or "")
        score = "none" if result.score is None else f"{result.score:.3f}"
        say(f"score {score} · {result.agent_id} {result.adapter_version} · {result.task_id}")
    else:
        say_error(f"{result.status}: {result.reason or 'no reason given'} ({result.task_id})")


@contextmanager
def _interruptible(client: FleetClient) -> Iterator[None]:
    """Ctrl-C stops the waiting, not the tasks."""
    try:
        yield
    except KeyboardInterrupt:
        left = client.open_tasks
        if left:
            say(f"\n{len(left)} tasks go on without you. Their answers: ratchet result {left[0]}  (… {left[-1]})")
        raise typer.Exit(INTERRUPTED) from None
