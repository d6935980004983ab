"""`ratchet feedback`: say how good an answer was, so that the next training learns from it."""

from __future__ import annotations

from typing import Annotated

import typer


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
    from ratchet.cli.feedback.publishing import new_feedback, publish_feedback
    from ratchet.cli.fleet.folder import FleetAccess
    from ratchet.cli.terminal.console import print_raw, say

    given = new_feedback(
        {"task_id": task_id, "score": score, "sample": sample, "reason": reason, "feedback_id": feedback_id}
    )
    publish_feedback(FleetAccess.here(), given)
    print_raw(str(given.feedback_id))
    say("The fleet has it; the next training learns from it.")
