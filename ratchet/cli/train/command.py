"""`ratchet train`: train an adapter from the log now, here, and see how it goes."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.terminal import UsageError, err, out, print_json, print_raw, say
from ratchet.cli.train.plan import PlanOptions, plan_run, render_plan
from ratchet.cli.train.request import publish_train_request, request_of
from ratchet.cli.train.run import TrainOptions, run_training
from ratchet.cli.train.view import TrainView, ended_well, render_outcome


def train(
    agent: Annotated[str | None, typer.Option(help="The fleet's first agent, if not given.")] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="grpo, vespo, masked-grpo, weighted-sft, best-of-group-sft, dpo, kto, or one registered by name."
        ),
    ] = "grpo",
    parent: Annotated[str | None, typer.Option(help="Version to start from; the primary, if not given.")] = None,
    since: Annotated[int, typer.Option(min=0, help="First byte of the log of interactions to read.")] = 0,
    loss: Annotated[
        str | None,
        typer.Option(help="Of grpo: dapo, dr_grpo, gspo, cispo or vespo; of dpo: sigmoid, sigmoid_norm or ipo."),
    ] = None,
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
    gpus: Annotated[int, typer.Option(min=0, help="For --plan; 0: on a CPU.")] = 1,
    gpu_memory: Annotated[float, typer.Option(min=0, help="For --plan: GB of each GPU.")] = 24.0,
    samples: Annotated[int, typer.Option(min=1, help="For --plan: answers to learn from.")] = 2048,
    tokens: Annotated[str, typer.Option(help="For --plan: of a prompt and of an answer.")] = "512+256",
    json: Annotated[bool, typer.Option("--json", help="How it ended, as JSON.")] = False,
) -> None:
    """Train an adapter from the log, in a process of its own, and register it: a running fleet takes it from there.

    Exit code 1 where the data can't support it, with the reason and the numbers.
    """
    access = FleetAccess.here()
    if plan:
        planned = plan_run(PlanOptions(model, gpus, gpu_memory, samples, tokens, tuple(set_ or ())), access)
        if json:
            print_json(planned)
        else:
            out.print(render_plan(planned))
        return
    options = TrainOptions(
        agent=agent or access.agents[0],
        algorithm=algorithm,
        parent=parent,
        since=since,
        loss=loss,
        epochs=epochs,
        lr=lr,
        seed=seed,
        assignments=tuple(set_ or ()),
        dry_run=dry_run,
    )
    if queue:
        _leave_to_the_fleet(access, options)
        return
    if options.agent not in access.agents:
        raise UsageError(f"agent {agent!r} is not of this fleet ({', '.join(access.agents)}): see RATCHET_AGENTS")
    with TrainView(err) as view:
        outcome = run_training(options, access, view.show)
    if json:
        print_json(outcome)
    else:
        out.print(render_outcome(outcome, dry_run=dry_run))
    if not ended_well(outcome, dry_run=dry_run):
        raise typer.Exit(1)


def _leave_to_the_fleet(access: FleetAccess, options: TrainOptions) -> None:
    if options.dry_run:
        raise UsageError("--dry-run looks at the data here, --queue trains elsewhere: choose one")
    request = request_of(options)
    publish_train_request(access, request)
    print_raw(request.request_id)
    say("The trainer has it. What becomes of it: Training on the page, ratchet adapters list, ratchet experiment list")
