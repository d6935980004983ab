"""`ratchet train`: train an adapter from the log now, here, and see how it goes; list, watch and cancel such runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from ratchet.adapters.registry import RegistryStore
from ratchet.runs.store import RunFolder
from ratchet.service.settings import FleetSettings
from schemas.messages.training import TrainRequest
from schemas.records.evidence import ExperimentPlan
from services.cli.adapters.here import operator
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import INTERRUPTED, UsageError, err, out, print_json, print_raw, say
from services.cli.train.plan import plan_run, render_plan
from services.cli.train.run import (
    Left,
    OnInterrupt,
    SomebodyIsAtIt,
    TrainingHere,
    build_request,
    parse_hyperparameters,
    publish_train_request,
    require_model,
)
from services.cli.train.view import (
    CANCEL_WAIT_S,
    TrainingsHere,
    TrainView,
    describe_run,
    ended_well,
    explain_next_steps,
    explain_waiting,
    render_outcome,
    render_runs,
)

LEAST_UNITS = "RATCHET_EXPERIMENT_MIN_UNITS_PER_ARM"
LEFT = "It goes on by itself: ratchet train --watch looks on, ratchet train --cancel ends it"


def train(
    run: Annotated[
        str | None, typer.Argument(help="Of --watch and --cancel: the run's id; the one at work, if not given.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The fleet's first agent, if not given.")] = None,
    algorithm: Annotated[
        str, typer.Option(help="grpo, masked-grpo, weighted-sft, best-of-group-sft, kto, or one registered by name.")
    ] = "grpo",
    parent: Annotated[str | None, typer.Option(help="Version to start from; the primary, if not given.")] = None,
    since: Annotated[int, typer.Option(min=0, help="First byte of the log of interactions to read; 0: all.")] = 0,
    loss: Annotated[str | None, typer.Option(help="Of grpo: dapo, dr_grpo, gspo, cispo or vespo.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the samples.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; by the model's size, if not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds and data give equal adapters.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other hyperparameter, as name=value; repeatable.")
    ] = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="Leave it to the running fleet's trainer; print the request's id.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and check the data; train nothing.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Memory, tokens and hours of a run by the model's size; train nothing.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="For --plan: a known model, as qwen2.5-7b, or a folder with a config.json.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="For --plan; 0: on a CPU. RATCHET_TRAINER_PROCESSES, or 1.")
    ] = None,
    gpu_memory: Annotated[float | None, typer.Option(min=1, help="For --plan: GB of each GPU; 24.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="For --plan: answers to learn from; 2048.")] = None,
    tokens: Annotated[str | None, typer.Option(help="For --plan: of a prompt and of an answer; 512+256.")] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="The runs there are, whoever asked for them; the newest last.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look on at a run until it has ended.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End a run; nothing of it is published.")] = False,
    json: Annotated[bool, typer.Option("--json", help="How it ended, as JSON.")] = False,
) -> None:
    """It takes eight groups at least: tasks of which the answers got unequal scores. `ratchet status` counts them, and
    `--set min_groups=4` asks for fewer. Of an agent one run is at work at a time. Ctrl-C asks what is to become of it;
    without a terminal it cancels. Exit code 1 where the data can't support it, with the reason and the numbers.
    """
    access = FleetAccess.here()
    if list_ + watch + cancel + queue + plan > 1:
        raise UsageError("--list, --watch, --cancel, --queue and --plan are five things: choose one")
    given = parse_hyperparameters(loss, epochs, lr, set_ or ())
    if plan:
        sizes: dict[str, Any] = {"gpus": gpus, "gpu_memory": gpu_memory, "samples": samples, "tokens": tokens}
        planned = plan_run(access, given, model=model, agent=agent, algorithm=algorithm, **sizes)
        if json:
            print_json(planned)
        else:
            out.print(render_plan(planned))
        return
    if any(one is not None for one in (model, gpus, gpu_memory, samples, tokens)):
        raise UsageError(
            "--model, --gpus, --gpu-memory, --samples and --tokens are for --plan; a run has the settings' model and "
            "processes (RATCHET_TRAINER_MODEL, RATCHET_TRAINER_PROCESSES), and what is in the log"
        )
    runs = TrainingsHere(FleetSettings.read().adapters_dir, access.agents)
    if list_:
        _list(runs, agent, as_json=json)
        return
    if watch or cancel:
        _look_on(runs, runs.choose(run, agent), cancel=cancel, as_json=json)
        return
    if run is not None:
        raise UsageError(f"{run!r} is for --watch or --cancel; a new run gets its own id")
    require_model(access)
    agent = agent or access.agents[0]
    request = build_request(agent, algorithm, parent, since, seed, given)
    waits_for = explain_waiting(RegistryStore(FleetSettings.read().adapters_dir).read().agent(agent), parent)
    if waits_for and not dry_run:
        say(waits_for)
    if queue:
        _leave_to_the_fleet(access, request, dry_run=dry_run)
        return
    if agent not in access.agents:
        raise UsageError(f"agent {agent!r} is not of this fleet ({', '.join(access.agents)}): see RATCHET_AGENTS")
    if not dry_run and (other := runs.store.at_work(agent)) is not None:
        _offer_to_watch(runs, other, as_json=json)
        return
    _name_what_was_left(runs, agent)
    with TrainView(err) as view:
        who = f"operator:{operator()}"
        here = TrainingHere(request, access, view.show_event, lambda: _ask(view, dry_run=dry_run), who, dry_run=dry_run)
        try:
            outcome = here.outcome()
        except Left:
            say(LEFT)
            return
        except SomebodyIsAtIt:
            outcome = None
    if outcome is None:
        _offer_to_watch(runs, runs.choose(None, agent), as_json=json)
        return
    _show_outcome(outcome, dry_run=dry_run, as_json=json)


def _ask(view: TrainView, *, dry_run: bool) -> OnInterrupt:
    if dry_run:
        return OnInterrupt.CANCEL
    if not (sys.stdin.isatty() and err.is_terminal):
        say("interrupted: the run is cancelled")
        return OnInterrupt.CANCEL
    with view.pause_bar():
        try:
            typed = err.input("\nThe training goes on. c: cancel it, l: leave it running by itself, Enter: look on  ")
        except (KeyboardInterrupt, EOFError):
            return OnInterrupt.CANCEL
    answers = {"c": OnInterrupt.CANCEL, "l": OnInterrupt.LEAVE}
    return answers.get(typed.strip().lower()[:1], OnInterrupt.GO_ON)


def _offer_to_watch(runs: TrainingsHere, folder: RunFolder, *, as_json: bool) -> None:
    """Exit with 1, unless the person at the terminal looks on at the run of the agent that is at work."""
    say(f"Nothing was begun: {describe_run(folder)}, and an agent has one at a time.")
    if sys.stdin.isatty() and err.is_terminal and typer.confirm("Look on at it?", default=True, err=True):
        _look_on(runs, folder, cancel=False, as_json=as_json)
        return
    say("ratchet train --watch looks on, --cancel ends it, --queue has the fleet's trainer do yours after it")
    raise typer.Exit(1)


def _name_what_was_left(runs: TrainingsHere, agent: str) -> None:
    for view, _ in runs.store.views(agent):
        if view.state == "running":
            say(
                f"Run {view.run_id} was left unfinished, and a trainer of the fleet will take it up; to forget it: "
                f"ratchet train --cancel {view.run_id}"
            )


def _list(runs: TrainingsHere, agent: str | None, *, as_json: bool) -> None:
    found = [(view, folder, not view.ended and folder.is_taken) for view, folder in runs.store.views(agent)]
    if as_json:
        print_json(
            [
                view.model_dump(mode="json") | {"at_work": at_work, "held_by": folder.holder if at_work else None}
                for view, folder, at_work in found
            ]
        )
    elif found:
        out.print(render_runs([(view, at_work) for view, _, at_work in found]))
    else:
        out.print("No training was asked for yet. Type: ratchet train", markup=False)


def _look_on(runs: TrainingsHere, folder: RunFolder, *, cancel: bool, as_json: bool) -> None:
    """Look on until it has ended. Ctrl-C ends only the looking on."""
    run_id = folder.request.request_id
    if cancel and folder.outcome is None:
        folder.cancel(f"operator:{operator()}")
        if folder.outcome is None:
            say(f"{folder.holder} is told to end run {run_id}")
    try:
        with TrainView(err) as view:
            outcome = runs.watch(folder, view, at_most_s=CANCEL_WAIT_S if cancel else None)
    except KeyboardInterrupt:
        say(f"\nRun {run_id} goes on" if not cancel else f"\nRun {run_id} ends as soon as it is told")
        raise typer.Exit(INTERRUPTED) from None
    if cancel and outcome["status"] == "failed":
        say(f"run {run_id} has ended")
    _show_outcome(outcome, dry_run=False, as_json=as_json, well=cancel and outcome["status"] == "failed")


def _show_outcome(outcome: Any, *, dry_run: bool, as_json: bool, well: bool = False) -> None:
    """Print the outcome. Raises Exit 1 where it did not end well. `well`: it ended as it was to."""
    if as_json:
        print_json(outcome)
    else:
        out.print(render_outcome(outcome, dry_run=dry_run))
        if outcome["status"] == "trained":
            say(explain_next_steps(outcome, _least_units()))
    if not (well or ended_well(outcome, dry_run=dry_run)):
        raise typer.Exit(1)


def _least_units() -> int:
    """Read the orchestrator's setting from this environment."""
    default = ExperimentPlan.model_fields["min_units_per_arm"].default
    set_to = os.environ.get(LEAST_UNITS, "")
    return int(set_to) if set_to.isdecimal() else int(default)


def _leave_to_the_fleet(access: FleetAccess, request: TrainRequest, *, dry_run: bool) -> None:
    if dry_run:
        raise UsageError("--dry-run looks at the data here, --queue trains elsewhere: choose one")
    publish_train_request(access, request)
    print_raw(request.request_id)
    say("The trainer has it. What becomes of it: Training on the page, ratchet adapters list, ratchet experiment list")
