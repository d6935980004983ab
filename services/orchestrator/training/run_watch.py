"""What has changed about training runs since they were last read: asked for, a step further, ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.api.events import TrainingMoved
from schemas.api.runs import RunView
from schemas.messages.adapter_trained import AdapterTrained

Name = tuple[str, str]
Seen = tuple[str, str | None, int | None]
"""State, stage and step."""


class RunWatch:
    """Follows the runs; those that were there at the first reading have not changed."""

    def __init__(self) -> None:
        self.messages = 0
        """How many ends came as messages: what was read before the last of them is older than what is known."""
        self._seen: dict[Name, Seen] | None = None

    def ended(self, outcome: AdapterTrained) -> TrainingMoved | None:
        """A run's end as a message; None where reading was faster than the message."""
        self.messages += 1
        name, seen = (outcome.agent_id, outcome.request_id), (outcome.status, None, None)
        if self._seen is not None and self._seen.get(name) == seen:
            return None
        self._seen = (self._seen or {}) | {name: seen}
        return TrainingMoved(
            agent_id=outcome.agent_id,
            request_id=outcome.request_id,
            state=outcome.status,
            version=outcome.adapter_version,
            reason=outcome.reason,
        )

    def changes(self, views: Sequence[RunView]) -> list[TrainingMoved]:
        before = self._seen
        self._seen = {(view.agent_id, view.run_id): _seen(view) for view in views}
        if before is None:
            return []
        return [_moved(view) for view in views if before.get((view.agent_id, view.run_id)) != _seen(view)]


def _seen(view: RunView) -> Seen:
    if view.progress is None:
        return view.state, None, None
    return view.state, view.progress.stage, view.progress.step


def _moved(view: RunView) -> TrainingMoved:
    return TrainingMoved(
        agent_id=view.agent_id,
        request_id=view.run_id,
        state="requested" if view.state == "queued" else view.state,
        version=view.adapter_version,
        reason=view.reason,
        step=view.progress.step if view.progress else None,
        steps=view.progress.steps if view.progress else None,
    )
