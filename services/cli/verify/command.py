"""`ratchet verify`: whether a task's hidden cases can be fooled, before anything learns from them."""

from __future__ import annotations

import json as json_lib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from schemas.messages.task import Task
from services.cli.eval.suites import suite_tasks, suites
from services.cli.harbor import read_tasks, solved_task
from services.cli.terminal import AsJson, ExitCode, UsageError, out, print_json, read_text
from services.cli.verify.trial import Trial, Tried, try_out


def verify(
    task: Annotated[
        Path | None, typer.Argument(metavar="[TASK.json]", help="A Task, with hidden cases as its criteria.")
    ] = None,
    answer: Annotated[
        Path | None,
        typer.Argument(metavar="[ANSWER]", help="A program or a patch of your own to be scored, too; - for stdin."),
    ] = None,
    scorer: Annotated[
        str, typer.Option(help="Who scores, as in RATCHET_SCORER; parts that score cost (tokens, time) are left out.")
    ] = "tests",
    suite: Annotated[
        str | None,
        typer.Option("--set", help="Each task of a set that comes with Ratchet, such as coding, or coding/odd-socks."),
    ] = None,
    harbor: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Harbor tasks; what their solution changes is the reference.")
    ] = None,
    json: AsJson = False,
) -> None:
    if sum(given is not None for given in (task, suite, harbor)) != 1:
        raise UsageError("give a task, --set or --harbor")
    if suite is not None:
        verify_tasks(_suite(suite), scorer)
        return
    if harbor is not None:
        verify_tasks(map(solved_task, read_tasks(harbor)), scorer)
        return
    assert task is not None
    trial = try_out(read_task(task), read_text(answer) if answer else None, scorer)
    if json:
        tried = [asdict(one) for one in trial.tried]
        told = {
            "sound": not trial.faults,
            "faults": trial.faults,
            "notes": trial.notes,
            "left_out": trial.left_out,
            "tried": tried,
        }
        print_json(told)
    else:
        _print(trial)
    if trial.faults:
        raise typer.Exit(ExitCode.FAILED)


def _suite(name: str) -> Iterator[Task]:
    """Yield the tasks of a suite whose ids begin with the name. Raises UsageError for a suite that is not there."""
    whole = name.partition("/")[0]
    chosen = [one for one in suite_tasks(whole) if f"{one['task_id']}/".startswith(f"{name}/")]
    if not chosen:
        raise UsageError(f"there is no set {name!r}: there are {', '.join(suites())}, and each problem of them")
    return map(Task.model_validate, chosen)


def verify_tasks(tasks: Iterable[Task], scorer: str) -> None:
    """Verify each and print a line of it; those of a language that is missing here are named.

    Raises Exit 1 where one is unsound.
    """
    count = unsound = untried = 0
    for one in tasks:
        count += 1
        trial = try_out(one, None, scorer)
        if all(tried.score is None for tried in trial.tried):
            untried += 1
            out.print(f"– {one.task_id}  not tried: {trial.tried[0].reason}", markup=False)
            continue
        unsound += bool(trial.faults)
        cheats = sum(tried.kind == "cheat" for tried in trial.tried)
        told = "; ".join(trial.faults) or f"sound: the reference earns 1, {cheats} cheats and nothing earn 0"
        out.print(Text.assemble(("✘", "red") if trial.faults else ("✔", "green"), f" {one.task_id}  {told}"))
    out.print(f"{count} tasks, {unsound} of them unsound, {untried} not tried", markup=False)
    if unsound:
        raise typer.Exit(ExitCode.FAILED)


def read_task(path: Path) -> Task:
    """Raises UsageError. `task_id` and `input` may be left out: nothing is asked."""
    try:
        given = json_lib.loads(read_text(path))
        return Task.model_validate({"task_id": "verified", "input": "-", **given})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"{path} is no Task: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} is no Task: {error}") from None


def _print(trial: Trial) -> None:
    for one in trial.tried:
        out.print(_line(one))
    for note in trial.notes:
        out.print(Text(note, style="yellow"))
    if trial.left_out:
        took = "what is tried took no calls of a model, so it has no cost"
        out.print(Text(f"left out: {', '.join(trial.left_out)}: {took}", style="dim"))
    if trial.faults:
        out.print(Text("can be fooled, or judges wrongly:", style="bold red"))
        for fault in trial.faults:
            out.print(Text(f"  {fault}", style="red"))
        return
    cheats = sum(one.kind == "cheat" for one in trial.tried)
    sound, style = ("sound, but for what is noted", "yellow") if trial.notes else ("sound", "green")
    out.print(Text(f"{sound}: the reference earns 1, nothing earns 0, {cheats} cheats earn 0", style=style))


def _line(one: Tried) -> Text:
    mark, style = ("✘", "red") if one.fault else ("✔", "green")
    score = "none" if one.score is None else f"{one.score:.3g}"
    return Text.assemble((mark, style), f" {one.kind:<7} {score:>5}  {one.what}", (f"  {one.reason or ''}", "dim"))
