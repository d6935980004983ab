"""`ratchet eval`: hold versions of an adapter, and programs, against each other on tasks that no training sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import typer

from ratchet.adapters.evaluations import register_set, registered_sets, write_evaluation
from ratchet.adapters.registry import RegistryStore
from ratchet.logs.rows import EvaluatedRow
from ratchet.service.errors import one_line
from ratchet.service.prices import Prices
from ratchet.service.settings import FleetSettings
from schemas.messages.result import Result
from schemas.messages.work import BASE_VERSION
from schemas.records.registry import AgentAdapters
from services.cli.eval.asking import Asking, Contestant, answers, scored_anew
from services.cli.eval.results import Asked, Group, Spent, evaluate, worth
from services.cli.eval.task_set import TaskSet, find_leaks, named_set, since_when, windows_of
from services.cli.eval.view import picture, render_evaluation
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import AsJson, ExitCode, UsageError, answered_bar, out, print_json, say
from services.cli.train.run import trainer_environment


def eval(  # noqa: A001  (the command's name)
    set_: Annotated[
        str,
        typer.Option("--set", help="The tasks: a file of JSON lines, `coding`, or harbor:DIR; see docs/evaluation.md."),
    ],
    version: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable; the first is what the others are held against. v1.0.0 and the primary."),
    ] = None,
    program: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable: programs of the agent, with the primary's model or each --version's."),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The fleet's first agent, if not given.")] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=64, help="Answers to each task.")] = 8,
    scorer: Annotated[
        str | None,
        typer.Option(help="Another scorer than the fleet's, such as verifier:exact: what answers are worth."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="The file of prices, for what a solved task cost.", envvar="RATCHET_PRICES")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds in which something must come.")] = 600.0,
    json: AsJson = False,
) -> None:
    """The set is registered first: from then on no training takes a sample with one of its inputs. What a version was
    already trained on is found in the log, said, and counts nowhere. Exit code 1 where a task was left unanswered.
    """
    access, settings = FleetAccess.here(), FleetSettings.read()
    chosen = agent or access.agents[0]
    adapters = RegistryStore(settings.adapters_dir).read().agent(chosen)
    contestants = _contestants(version or [], program or [], adapters)
    price = Prices.read(prices).agents.get(chosen) if prices is not None else None
    tasks, now = named_set(set_), datetime.now(UTC)
    if tasks.twice:
        say(f"{tasks.twice} lines of {set_} ask what another asks, and are left out")
    register_set(settings.adapters_dir, chosen, tasks.registration(now))
    versions = dict.fromkeys(one.version for one in contestants)
    windows = {one: list(windows_of(settings.adapters_dir, adapters, chosen, one)) for one in versions}
    kept_since = since_when(registered_sets(settings.adapters_dir, chosen), [one.sha256 for one in tasks.tasks])
    leaks = find_leaks(access.logs_dir, chosen, windows, kept_since)
    leaked = {sha256 for one in leaks.values() for sha256 in one.inputs}
    counted = TaskSet(tasks.name, tuple(one for one in tasks.tasks if one.sha256 not in leaked))
    if not counted.tasks:
        raise UsageError("each of these tasks lies in a window that a version was trained on: take others")
    asking = Asking(f"{Path(set_).stem[:60]}-{now:%Y%m%dT%H%M%S}", chosen, samples, timeout)
    lines = _ask(access, asking, counted, contestants)
    name, groups = _groups(lines, scorer)
    evaluation = evaluate(asking, tasks, groups, name, adapters, leaks, price, now)
    path = write_evaluation(settings.adapters_dir, evaluation, picture(evaluation))
    if json:
        print_json(evaluation.model_dump(mode="json") | {"path": str(path)})
    else:
        out.print(render_evaluation(evaluation))
        out.print(f"{path}, and beside it the picture ({path.with_suffix('.svg').name})", markup=False)
    if untold := give_to_trackers(path, trainer_environment(access)):
        say(f"{untold}; the evaluation is in {path}")
    if any(one.unanswered for one in evaluation.versions):
        raise typer.Exit(ExitCode.FAILED)


def _contestants(versions: Sequence[str], programs: Sequence[str], adapters: AgentAdapters) -> list[Contestant]:
    """Raises UsageError for one version that has no other to be held against, or one that agents have not loaded."""
    named = list(dict.fromkeys(versions or ([adapters.primary] if programs else [BASE_VERSION, adapters.primary])))
    if not programs and len(named) == 1 and versions and named != [BASE_VERSION]:
        named.insert(0, BASE_VERSION)
    if not programs and len(named) < 2:
        raise UsageError("there is one version to be held against nothing: name two with --version, or a --program")
    offered = adapters.in_traffic | {BASE_VERSION}
    if gone := [one for one in named if one not in offered]:
        raise UsageError(
            f"{', '.join(gone)}: not loaded by the fleet, which answers with {', '.join(sorted(offered))} now"
        )
    return [Contestant(one, program) for one in named for program in dict.fromkeys(programs) or (None,)]


def _ask(
    access: FleetAccess, asking: Asking, tasks: TaskSet, contestants: Sequence[Contestant]
) -> list[tuple[Asked, list[EvaluatedRow]]]:
    """Task by task of all contestants, so that whatever changes meanwhile meets all alike."""
    asked = {
        asking.task_id(contestant, number): (Asked(contestant, one), partial(asking.task, one, contestant, number))
        for number, one in enumerate(tasks.tasks)
        for contestant in contestants
    }
    said = set[str | None]()

    def report_refusal(result: Result) -> None:
        if result.reason not in said:
            say(f"{result.task_id} was refused: {result.reason}")
        said.add(result.reason)

    with answered_bar() as progress, access.client(stall_s=asking.stall_s) as fleet:
        bar = progress.add_task("answered", total=len(asked))
        found = answers(
            fleet,
            access.logs_dir,
            {task_id: make for task_id, (_, make) in asked.items()},
            asking.stall_s,
            lambda: progress.advance(bar),
            report_refusal,
        )
    return [(about, found[task_id]) for task_id, (about, _) in asked.items()]


def _groups(lines: Sequence[tuple[Asked, list[EvaluatedRow]]], scorer: str | None) -> tuple[str, list[Group]]:
    """Return whose scores they are, and the answers with them."""
    answered = {str(n): (about, rows) for n, (about, rows) in enumerate(lines) if rows and rows[0].sample is not None}
    if scorer is None:
        scores = {n: [worth(row.score, row.score_status) for row in rows] for n, (_, rows) in answered.items()}
        known = {
            f"{row.scorer.id} {row.scorer.revision}" for _, rows in answered.values() for row in rows if row.scorer
        }
        name = ", ".join(sorted(known)) or "nobody"
    else:
        name, given = scored_anew(scorer, {n: (about.one.task, rows) for n, (about, rows) in answered.items()})
        scores = {n: [worth(one["score"], one["status"]) for one in of] for n, of in given.items()}
    groups = [
        Group(
            about,
            list(zip((row.score for row in rows), scores[str(n)], strict=True)) if str(n) in answered else None,
            [Spent.of(row) for row in rows if row.sample is not None],
        )
        for n, (about, rows) in enumerate(lines)
    ]
    return name, groups


MOST_S = 180.0
"""A tracker that is away may be asked again and again by its client."""


def give_to_trackers(
    evaluation: Path,
    environment: Mapping[str, str],
    command: tuple[str, ...] = (sys.executable, "-m", "services.trainer.train"),
    most_s: float = MOST_S,
) -> str | None:
    """Return in a sentence which tracker did not get it; None where all has, or RATCHET_TRAINER_REPORT_TO names no
    tracker.

    `environment`: the trainer's.
    """
    if not environment.get("RATCHET_TRAINER_REPORT_TO", "").strip():
        return None
    with subprocess.Popen(
        [*command, "--evaluation", str(evaluation)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as trainer:
        try:
            said, complaints = trainer.communicate(timeout=most_s)
        except subprocess.TimeoutExpired:
            return f"the trackers did not take the evaluation within {most_s:.0f} s"
        finally:
            end(trainer)
    if trainer.returncode == 0:
        return None
    faults = [json.loads(line)["warning"] for line in said.splitlines()]
    last = (complaints.strip().splitlines() or [f"its process ended with {trainer.returncode}"])[-1]
    return "; ".join(faults) or f"no tracker got the evaluation: {one_line(last)}"


def end(process: subprocess.Popen[str]) -> None:
    """It, its session, and what it started in sessions of their own, as trackers' clients do. Blocks for a moment."""
    with suppress(psutil.NoSuchProcess):
        for helper in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                helper.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
