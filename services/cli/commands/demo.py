"""`ratchet demo`: the whole fleet at work on tasks its models never saw, and a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from services.cli.demo_report import DemoReport
    from services.cli.demo_run import DemoPlan
    from services.cli.fleet_options import FleetOptions


def demo(
    tasks: Annotated[int, typer.Option(min=1, max=5000, help="Tasks to submit.")] = 200,
    samples: Annotated[int, typer.Option(min=1, max=64, help="Answers sampled for each; the best-scored wins.")] = 8,
    seed: Annotated[int, typer.Option(help="Which tasks are drawn.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fleet running.")] = False,
    port_base: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 8700,
    amqp_port: Annotated[int, typer.Option(help="As for `ratchet up`.")] = 5673,
    timeout: Annotated[float, typer.Option(help="Seconds to wait: for the fleet, and for an answer.")] = 180.0,
    json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Make the models, start the fleet, submit tasks the models never saw, print a report, stop the fleet.

    Exit code 1 if a task was lost or failed, a sample was logged twice, or a dead letter was left.
    """
    from services.cli.demo_run import DemoPlan
    from services.cli.exit_codes import ExitCode
    from services.cli.fleet_options import FleetOptions
    from services.cli.launch import land, launch, running_options

    options = FleetOptions(port_base=port_base, amqp_port=amqp_port, trainer=False)
    running = running_options()
    _require_same_models(running or options, options)
    launch(options, os.environ.get("RATCHET_AMQP_URL"), timeout, insist=False)
    stays = keep or running is not None
    try:
        report = _run(DemoPlan(tasks, samples, seed, timeout))
        _print(report, as_json=json)
    finally:
        if not stays:
            land()
    _say_next(stays=stays)
    if not report.sound:
        raise typer.Exit(ExitCode.FAILED)


def _require_same_models(running: FleetOptions, wanted: FleetOptions) -> None:
    """The report speaks of a small model that a bigger one scores: a fleet that is up must be such a one."""
    from services.cli.exit_codes import CommandError

    names = ("engine", "model", "scorer", "judge_model")
    differing = [name for name in names if getattr(running, name) != getattr(wanted, name)]
    if differing:
        raise CommandError(f"the fleet that is up here differs in {', '.join(differing)}: `ratchet down` first")


def _run(plan: DemoPlan) -> DemoReport:
    from services.cli.demo_run import run_demo
    from services.cli.fleet_access import FleetAccess

    with _progress(plan.tasks) as advance:
        return run_demo(FleetAccess.here(), plan, advance)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, elsewhere a line at each quarter."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from services.cli.console import err, say

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
        bar = progress.add_task("tasks answered", total=total)
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            progress.advance(bar)
            if not err.is_terminal and done % max(1, total // 4) == 0:
                say(f"{done} of {total} tasks answered")

        yield advance


def _print(report: DemoReport, *, as_json: bool) -> None:
    from services.cli.console import out, print_json
    from services.cli.demo_view import render_demo
    from services.cli.fleet_access import FleetAccess

    if as_json:
        print_json(report.as_dict())
    else:
        out.print(render_demo(report, FleetAccess.here().logs_dir / "agent_interactions.jsonl"), soft_wrap=False)


def _say_next(*, stays: bool) -> None:
    from services.cli.console import say

    if stays:
        say('\nThe fleet is still up. Next:  ratchet submit "sort: gbaec"    ratchet watch    ratchet down')
    else:
        say('\nThe fleet is down again. Next:  ratchet up    ratchet submit "sort: gbaec"    ratchet log tail')
