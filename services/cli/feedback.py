"""`ratchet feedback`: say how good an answer was, so that the next training learns from it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ratchet.logs.names import START_OFFSETS
from ratchet.service.errors import NotFound
from schemas.messages.base import Metadata, explain
from schemas.messages.feedback import Feedback
from services.cli.fleet.folder import FleetAccess
from services.cli.result import find_task
from services.cli.terminal import UsageError, print_raw, say


def feedback(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it.")],
    score: Annotated[float, typer.Option(min=0, max=1, help="0 is useless, 1 is as good as can be.")],
    sample: Annotated[
        int | None, typer.Option(min=0, max=63, help="Which answer of the group; the one the user got, if not given.")
    ] = None,
    correction: Annotated[
        str | None, typer.Option(help="The answer as it should have been; the next training learns from it.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, in a sentence; it is kept in the log.")] = None,
    feedback_id: Annotated[str | None, typer.Option("--id", help="Your own id; the same id again counts once.")] = None,
) -> None:
    """It returns once the broker has it. Where the fleet's log is at hand an unknown task is refused; elsewhere what
    can't be right ends in `ratchet dead-letters list`.
    """
    given = new_feedback(
        {
            "task_id": task_id,
            "score": score,
            "sample": sample,
            "correction": correction,
            "reason": reason,
            "feedback_id": feedback_id,
        }
    )
    access = FleetAccess.here()
    known = is_known(access, given)
    publish_feedback(access, given)
    print_raw(str(given.feedback_id))
    say(
        "The fleet has it; the next training learns from it."
        if known
        else "Sent; of a task that the fleet does not know it ends in the dead letters: ratchet dead-letters list"
    )


def new_feedback(fields: dict[str, Any]) -> Feedback:
    """Make feedback of these fields, those that are None left out, with an id. Raises UsageError naming what is at
    fault."""
    given = {name: value for name, value in fields.items() if value is not None}
    given.setdefault("feedback_id", f"feedback-{uuid.uuid4().hex}")
    try:
        return Feedback(metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet feedback"), **given)
    except ValidationError as error:
        raise UsageError(explain(Feedback.TYPE, error)) from None


def is_known(access: FleetAccess, feedback: Feedback) -> bool:
    """Tell whether the log says that it is about an answer; False where the log can't say.

    Raises NotFound for a task or a sample that there is not, by the whole log of the fleet that was started here.
    """
    record, logs_dir = access.record, access.logs_dir
    if record is None or (record.amqp_url, record.namespace) != (access.amqp_url, access.namespace):
        return False
    task = find_task(logs_dir, feedback.task_id)
    if task is None:
        if (logs_dir / START_OFFSETS).exists():  # its beginning is gone, and with it tasks that were answered
            return False
        raise NotFound(f"no task {feedback.task_id!r} in {logs_dir}: feedback names the id that `ratchet submit` said")
    if task.lines and feedback.sample is not None and feedback.sample >= len(task.lines):
        raise NotFound(f"task {feedback.task_id!r} has {len(task.lines)} samples, 0 first: no {feedback.sample}")
    return bool(task.lines)


def publish_feedback(access: FleetAccess, feedback: Feedback) -> None:
    """Returns once the broker has it. Raises BusError, FleetError."""
    with access.client(replies=False) as fleet:
        fleet.feedback(**{name: value for name, value in feedback if name in feedback.model_fields_set})
