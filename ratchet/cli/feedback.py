"""`ratchet feedback`: say how good an answer was, so that the next training learns from it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ratchet.bus.message_id import derived_id
from ratchet.bus.topology import FEEDBACK
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.fleet.publishing import publish
from ratchet.cli.terminal import UsageError, print_raw, say
from schemas.messages.base import Metadata, explain
from schemas.messages.feedback import Feedback


def feedback(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it.")],
    score: Annotated[float, typer.Option(min=0, max=1, help="0 is useless, 1 is as good as can be.")],
    sample: Annotated[
        int | None, typer.Option(min=0, max=63, help="Which answer of the group; the one the user got, if not given.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, in a sentence; it is kept in the log.")] = None,
    feedback_id: Annotated[str | None, typer.Option("--id", help="Your own id; the same id again counts once.")] = None,
) -> None:
    """Give feedback on an answer. In training its score takes the place of the scorer's; of several the last counts.

    It returns once the broker has it. What can't be right (an unknown task, say) ends in `ratchet dead-letters list`.
    """
    given = new_feedback(
        {"task_id": task_id, "score": score, "sample": sample, "reason": reason, "feedback_id": feedback_id}
    )
    publish_feedback(FleetAccess.here(), given)
    print_raw(str(given.feedback_id))
    say("The fleet has it; the next training learns from it.")


def new_feedback(fields: dict[str, Any]) -> Feedback:
    """Of these fields, those that are None left out, with an id. Raises UsageError naming what is at fault."""
    given = {name: value for name, value in fields.items() if value is not None}
    given.setdefault("feedback_id", f"feedback-{uuid.uuid4().hex}")
    try:
        return Feedback(metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet feedback"), **given)
    except ValidationError as error:
        raise UsageError(explain(Feedback.TYPE, error)) from None


def publish_feedback(access: FleetAccess, feedback: Feedback) -> None:
    """Returns once the broker has it. Raises BusError, CommandError where no fleet ever was."""
    publish(access, FEEDBACK, feedback, derived_id(feedback.feedback_id or "", "feedback"))
