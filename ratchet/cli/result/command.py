"""`ratchet result`: the answer to a task submitted earlier, from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ratchet.cli.result.logged_task import LoggedTask


def result(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it.")],
    json: Annotated[bool, typer.Option("--json", help="Every logged sample, as JSON.")] = False,
) -> None:
    """Print the answer to a task submitted earlier. Exit code 1 if the task failed or is not known, 4 if still open."""
    from ratchet.cli.fleet.folder import FleetAccess
    from ratchet.cli.result.logged_task import find_task
    from ratchet.cli.terminal.errors import CommandError

    access = FleetAccess.here()
    task = find_task(access.logs_dir, task_id)
    if task is None:
        raise CommandError(
            f"no task {task_id!r} in {access.logs_dir}: mistyped, still in the queue `tasks`, or of a fleet "
            "that logs elsewhere (RATCHET_LOGS_DIR)"
        )
    _print(task, task_id, as_json=json)


def _print(task: LoggedTask, task_id: str, *, as_json: bool) -> None:
    from json import loads as json_of

    from ratchet.cli.terminal.console import print_json, print_raw, say
    from ratchet.cli.terminal.errors import CommandError, TimedOut

    if as_json:
        samples = [json_of(line.data) for line in task.lines]
        print_json({"task_id": task_id, "open": not samples, "samples": samples})
    if not task.lines:
        raise TimedOut(f"task {task_id} is admitted and not answered yet: `ratchet status` shows whether all is well")
    best = task.best
    if best.status != "ok":
        raise CommandError(f"task {task_id} {best.status}: {best.reason}")
    if not as_json:
        print_raw(best.response or "")
        score = "none" if best.score is None else f"{best.score:.3f}"
        chosen = f"sample {best.sample} of {len(task.lines)}"
        say(f"score {score} · {best.agent_id} {best.adapter_version} · {chosen}")
