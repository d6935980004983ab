"""`ratchet experiment`: what was tried on live traffic, how it stands, and whether a verdict holds when replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.experiments.book import ExperimentRecord
    from services.experiments.look import ExperimentLook

experiment = typer.Typer(
    help="Adapters tried on live traffic: list, show the evidence as a picture, replay a verdict.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
NONE_YET = "No experiment yet. One begins by itself once a new adapter is trained (ratchet train) and validated."


@experiment.command("list")
def list_(agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None, json: AsJson = False) -> None:
    """List all experiments, canaries and probations, the newest last, with their outcomes."""
    from services.cli.console import out, print_json
    from services.cli.experiments.experiment_view import render_list

    records = [record for record in _records() if agent in (None, record.agent_id)]
    if json:
        print_json([record.as_dict() for record in records])
    else:
        out.print(render_list(records) if records else NONE_YET)


@experiment.command()
def show(
    experiment_id: Annotated[
        str | None, typer.Argument(help="Its id, as `list` shows it; the running one if none.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The running, or newest, experiment of this agent.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Look again until it ends; Ctrl-C ends it.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="With --follow: seconds between two looks.")] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="As JSON; with --follow one object a look.")] = False,
) -> None:
    """Draw the effect with its anytime-valid band and the e-values; say the verdict, or what is missing for one."""
    from services.cli.console import print_json
    from services.cli.fleet.fleet_access import FleetAccess
    from services.experiments.book import chosen
    from services.experiments.look import looked_at

    logs_dir = FleetAccess.here().logs_dir
    shown = chosen(_records(), experiment_id, agent).experiment_id

    def look() -> ExperimentLook:
        return looked_at(chosen(_records(), shown, None), logs_dir)

    if follow:
        _follow(look, interval, json)
    elif json:
        print_json(look().as_dict())
    else:
        _print(look())


@experiment.command()
def replay(
    experiment_id: Annotated[str, typer.Argument(help="Its id, as `list` shows it.")], json: AsJson = False
) -> None:
    """Decide an ended experiment again from the logs alone, and compare with the ledger. Exit code 1 if it differs."""
    from services.cli.console import out, print_json
    from services.cli.exit_codes import ExitCode
    from services.cli.experiments.experiment_check import check
    from services.cli.experiments.experiment_view import render_check
    from services.cli.fleet.fleet_access import FleetAccess
    from services.experiments.book import chosen

    found = check(chosen(_records(), experiment_id, None), FleetAccess.here().logs_dir)
    print_json(found.as_dict()) if json else out.print(render_check(found))
    if found.difference is not None:
        raise typer.Exit(ExitCode.FAILED)


def _records() -> list[ExperimentRecord]:
    from services.adapters.decisions import DecisionLedger
    from services.experiments.book import experiments
    from services.settings import FleetSettings

    ledger = DecisionLedger(FleetSettings.read().adapters_dir)
    return experiments(decision for decision, _ in ledger.read())


def _print(look: ExperimentLook) -> None:
    from services.cli.console import out
    from services.cli.experiments.experiment_view import render_look

    out.print(render_look(look, width=out.width, plain=_plain(out.encoding)), soft_wrap=False)


def _follow(look: Callable[[], ExperimentLook], interval: float, json: bool) -> None:
    from services.cli.console import out

    try:
        _follow_live(look, interval) if out.is_terminal and not json else _follow_plain(look, interval, json)
    except KeyboardInterrupt:
        return


def _follow_plain(look: Callable[[], ExperimentLook], interval: float, json: bool) -> None:
    import time

    from services.cli.console import print_json

    while True:
        seen = look()
        print_json(seen.as_dict(), indent=None) if json else _print(seen)
        if seen.record.ended:
            return
        time.sleep(interval)


def _follow_live(look: Callable[[], ExperimentLook], interval: float) -> None:
    import time

    from rich.live import Live

    from services.cli.console import out
    from services.cli.experiments.experiment_view import render_look

    with Live(console=out, auto_refresh=False) as live:
        while True:
            seen = look()
            live.update(render_look(seen, width=out.width, rows=out.height, plain=_plain(out.encoding)), refresh=True)
            if seen.record.ended:
                return
            time.sleep(interval)


def _plain(encoding: str) -> bool:
    return not encoding.lower().replace("-", "").startswith("utf")
