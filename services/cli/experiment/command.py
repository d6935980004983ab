"""`ratchet experiment`: what was tried on live traffic, how it stands, and whether a verdict holds when replayed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.live import Live

from ratchet.adapters.decisions import DecisionLedger
from ratchet.experiments.records import ExperimentRecord, choose_record, experiments
from ratchet.experiments.view import ExperimentView, view_of
from ratchet.service.settings import FleetSettings
from services.cli.experiment.replay_check import check
from services.cli.experiment.view import render_check, render_experiment, render_list
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import AsJson, ExitCode, out, print_json

experiment = typer.Typer()

NONE_YET = (
    "No experiment yet. One begins by itself once a new adapter is trained (ratchet train) and validated; one of a "
    "program where somebody asks for it (ratchet programs try)."
)


@experiment.command("list")
def list_(agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None, json: AsJson = False) -> None:
    """List all experiments, canaries and watches, the newest last, with their outcomes."""
    records = [record for record in _records() if agent in (None, record.agent_id)]
    if json:
        print_json([record.as_dict() for record in records])
    else:
        out.print(render_list(records) if records else NONE_YET)


@experiment.command()
def show(
    experiment_id: Annotated[
        str | None, typer.Argument(help="Its id, as `list` shows it; if none, the running or the newest ended one.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The running, or newest, experiment of this agent.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Look again until it ends; Ctrl-C ends it.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="With --follow: seconds between two readings.")] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="As JSON; with --follow one object a reading.")] = False,
) -> None:
    """Draw the effect with its anytime-valid band and the e-values; say the verdict, or what is missing for one."""
    logs_dir = FleetAccess.here().logs_dir
    shown = choose_record(_records(), experiment_id, agent).experiment_id

    def read() -> ExperimentView:
        return view_of(choose_record(_records(), shown, None), logs_dir)

    if follow:
        _follow(read, interval, json)
    elif json:
        print_json(read().as_dict())
    else:
        _print(read())


@experiment.command()
def replay(
    experiment_id: Annotated[str, typer.Argument(help="Its id, as `list` shows it.")], json: AsJson = False
) -> None:
    """Decide an ended experiment again from the logs alone, and compare with the ledger. Exit code 1 if it differs."""
    found = check(choose_record(_records(), experiment_id, None), FleetAccess.here().logs_dir)
    print_json(found.as_dict()) if json else out.print(render_check(found))
    if not found.holds:
        raise typer.Exit(ExitCode.FAILED)


def _records() -> list[ExperimentRecord]:
    ledger = DecisionLedger(FleetSettings.read().adapters_dir)
    return experiments(decision for decision, _ in ledger.read())


def _print(view: ExperimentView) -> None:
    out.print(render_experiment(view, width=out.width, plain=_plain(out.encoding)), soft_wrap=False)


def _follow(read: Callable[[], ExperimentView], interval: float, json: bool) -> None:
    try:
        _follow_live(read, interval) if out.is_terminal and not json else _follow_plain(read, interval, json)
    except KeyboardInterrupt:
        return


def _follow_plain(read: Callable[[], ExperimentView], interval: float, json: bool) -> None:
    while True:
        seen = read()
        print_json(seen.as_dict(), indent=None) if json else _print(seen)
        if seen.record.ended:
            return
        time.sleep(interval)


def _follow_live(read: Callable[[], ExperimentView], interval: float) -> None:
    with Live(console=out, auto_refresh=False) as live:
        while True:
            seen = read()
            drawn = render_experiment(seen, width=out.width, rows=out.height, plain=_plain(out.encoding))
            live.update(drawn, refresh=True)
            if seen.record.ended:
                return
            time.sleep(interval)


def _plain(encoding: str) -> bool:
    return not encoding.lower().replace("-", "").startswith("utf")
