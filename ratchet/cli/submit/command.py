"""`ratchet submit`: give the fleet one task or a file of them, and print the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def submit(
    text: Annotated[str | None, typer.Argument(help="What to ask; - reads it from stdin.")] = None,
    file: Annotated[Path | None, typer.Option(help="Tasks as JSONL, one a line; - reads them from stdin.")] = None,
    out: Annotated[Path | None, typer.Option(help="With --file: write the results here, not to stdout.")] = None,
    agent: Annotated[str | None, typer.Option(help="Which agent answers.")] = None,
    reference: Annotated[str | None, typer.Option(help="The right answer, for scorers that verify.")] = None,
    criteria: Annotated[str | None, typer.Option(help="What a good answer is, for scorers that judge.")] = None,
    samples: Annotated[int | None, typer.Option(help="Answers to sample; the best-scored one comes back.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 to 9; 5 and above overtakes what waits below.")] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Seconds from now after which it is no longer wanted.")
    ] = None,
    task_id: Annotated[str | None, typer.Option(help="Your own id; the same id again gets the same answer.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait for the answer; --no-wait prints the task id and returns.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds without any answer after which to stop waiting.")
    ] = 300.0,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """Submit a task and print the best answer, or a file of tasks and print a result a line."""
    from ratchet.cli.submit.submission import Submission, submit_file, submit_one

    if (text is None) == (file is None):
        raise typer.BadParameter('give either a text or --file: ratchet submit "sort: gbaec"')
    if file and (task_id or reference):
        raise typer.BadParameter("--task-id and --reference belong to one task: write them into the file's lines")
    fields: dict[str, Any] = {"agent_id": agent, "reference": reference, "criteria": criteria, "samples": samples}
    fields |= {"priority": priority, "task_id": task_id, "deadline": _moment(deadline)}
    submission = Submission(wait=wait, timeout_s=timeout, as_json=json)
    if file is not None:
        submit_file(file, fields, out, submission)
    else:
        submit_one(str(text), fields, submission)


def _moment(seconds: float | None) -> Any:
    from datetime import UTC, datetime, timedelta

    return None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
