"""`ratchet experiment`: what was tried on live traffic, how it stands, and whether a verdict holds when replayed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.live import Live
from rich.text import Text

from ratchet.adapters.decisions import DecisionLedger
from ratchet.adapters.draw_secrets import is_committed_to
from ratchet.experiments.records import ExperimentRecord, choose_record, experiments
from ratchet.experiments.replay import draw_again, replay_experiment
from ratchet.experiments.view import ExperimentView, view_of
from ratchet.service.settings import FleetSettings
from schemas.messages.base import explain
from services.cli.experiment.view import render_experiment, render_list
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import AsJson, CommandError, ExitCode, out, print_json

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
    live = Live(console=out, auto_refresh=False) if out.is_terminal and not json else None
    with suppress(KeyboardInterrupt), live or nullcontext():
        while not (seen := read()).record.ended:
            _show_again(seen, live, json)
            time.sleep(interval)
        _show_again(seen, live, json)


def _show_again(seen: ExperimentView, live: Live | None, json: bool) -> None:
    if live is not None:
        drawn = render_experiment(seen, width=out.width, rows=out.height, plain=_plain(out.encoding))
        live.update(drawn, refresh=True)
    elif json:
        print_json(seen.as_dict(), indent=None)
    else:
        _print(seen)


def _plain(encoding: str) -> bool:
    return not encoding.lower().replace("-", "").startswith("utf")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field that differs, as in `evidence.candidate.units`, and both values."""

    field: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """`difference` is None where both are identical. `drawn`: units that were drawn again, with the same result.

    `wrong_draw`: the first unit whose arm is not what the secret draws, or why no secret counts; None if all is right.
    """

    experiment_id: str
    decision: int
    verdict: str
    difference: Difference | None
    drawn: int
    wrong_draw: str | None

    @property
    def holds(self) -> bool:
        """Tell whether the verdict and every draw come out again."""
        return self.difference is None and self.wrong_draw is None

    def as_dict(self) -> dict[str, Any]:
        difference = self.difference and asdict(self.difference)
        return asdict(self) | {"identical": self.difference is None, "difference": difference}


def check(record: ExperimentRecord, logs_dir: Path) -> ReplayCheck:
    """Raises CommandError where there is no verdict to check; JournalError for logs that can't be read."""
    if record.ended is None:
        raise CommandError(
            f"{record.experiment_id} is still running, so there is no verdict to check yet: "
            f"ratchet experiment show {record.experiment_id}"
        )
    if record.ended.evidence.get("experiment_id") != record.experiment_id:
        raise CommandError(
            f"{record.experiment_id} was ended by {record.ended.who} in decision {record.ended.sequence} "
            f"({record.ended.reason}), not by a verdict of its own: there is nothing to compare"
        )
    recorded = record.ended.evidence
    try:
        again = replay_experiment(record.running, logs_dir).decision
    except ValidationError as error:
        raise CommandError(
            f"{record.experiment_id} was run by another version of ratchet ({explain('plan', error)}): replay it there"
        ) from None
    difference = first_difference(recorded, again.model_dump(mode="json"))
    verdict, (drawn, wrong_draw) = str(recorded.get("verdict")), _check_draws(record, logs_dir)
    return ReplayCheck(record.experiment_id, record.ended.sequence, verdict, difference, drawn, wrong_draw)


def _check_draws(record: ExperimentRecord, logs_dir: Path) -> tuple[int, str | None]:
    """Return how many units were drawn again rightly, and what is wrong with the draws."""
    draws = record.ended.draws if record.ended else None
    secret = (draws or {}).get(record.experiment_id, "")
    if not is_committed_to(record.running, secret):
        return 0, "the decision that ended it does not tell the secret that its plan names"
    drawn, wrong = draw_again(record.running, secret, logs_dir)
    return drawn, wrong and f"unit {wrong} was not given to the arm that the secret draws"


def first_difference(recorded: Any, replayed: Any, field: str = "") -> Difference | None:
    """Find it in the order of the replayed fields, the verdict first. Numbers are compared by every bit: no tolerance.

    A field that is not there is one that is null: an older ledger lacks those that came later.
    """
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for name in dict.fromkeys([*replayed, *recorded]):
            path = f"{field}.{name}" if field else name
            if difference := first_difference(recorded.get(name), replayed.get(name), path):
                return difference
        return None
    return None if repr(recorded) == repr(replayed) else Difference(field or "verdict", recorded, replayed)


def render_check(check: ReplayCheck) -> Text:
    place = f"{check.experiment_id}, decision {check.decision}: {check.verdict}"
    if check.wrong_draw is not None:
        return Text.assemble(("✘ not as drawn", "red"), f" · {place}\n  {check.wrong_draw}")
    if check.difference is None:
        return Text.assemble(
            ("✔ identical", "green"),
            f" · {place}, replayed from the logs, every number to the last bit; the arms of {check.drawn} units "
            "drawn again",
        )
    was = check.difference
    return Text.assemble(
        ("✘ differs", "red"),
        f" · {place}\n  {was.field} is {was.recorded!r} in the ledger, but {was.replayed!r} replayed from the logs",
    )
