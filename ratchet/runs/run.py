"""A training run: what was asked, how it goes, how it ended. schemas/api/runs.py says what its states mean."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import model_validator

from ratchet.runs.progress import Point, RunProgressRecord, training_report
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import Record, Timestamp
from schemas.messages.training import AdapterTrained, TrainRequest

LEAST_GROUPS = 8
"""Default of `min_groups`: a run needs so many groups to learn from."""


NOTHING_AGAINST_IT = "a dry run stops here: nothing speaks against training"
"""Reason of a dry run that would have trained."""


class TrainingRun(Record):
    """One run, as far as it is known. Its folder has all of it; a foreign trainer tells only the end.

    `request` has all choices made, once they are. `attempts` counts the starts since the last newer checkpoint.
    """

    request: TrainRequest | None = None
    asked_at: Timestamp | None = None
    attempts: int = 0
    progress: RunProgressRecord | None = None
    outcome: AdapterTrained | None = None

    @model_validator(mode="after")
    def _is_some_run(self) -> Self:
        if self.request is None and self.outcome is None:
            raise ValueError("a run has a request, or at least an outcome")
        return self

    @property
    def run_id(self) -> str:
        return self._named.request_id

    @property
    def agent_id(self) -> str:
        return self._named.agent_id

    @property
    def _named(self) -> TrainRequest | AdapterTrained:
        named = self.request or self.outcome
        assert named is not None
        return named

    @property
    def state(self) -> RunState:
        if self.outcome is not None:
            return self.outcome.status
        return "running" if self.attempts else "queued"

    @property
    def view(self) -> RunView:
        """The run as the API shows it."""
        request, progress, outcome = self.request, self.progress, self.outcome
        ended_at = outcome.metadata.timestamp if outcome else None
        seconds = (ended_at - self.asked_at).total_seconds() if ended_at and self.asked_at else None
        return RunView(
            run_id=self.run_id,
            agent_id=self.agent_id,
            state=self.state,
            asked_by=request.metadata.source if request else None,
            why=_reason(request) if request else None,
            algorithm=request.algorithm if request else None,
            parent_version=(request and request.parent_version) or (outcome and outcome.parent_version),
            hyperparameters=request.hyperparameters if request else {},
            seed=request.seed if request else None,
            asked_at=self.asked_at,
            ended_at=ended_at,
            seconds=None if seconds is None else max(0.0, seconds),
            attempts=self.attempts,
            progress=progress.progress if progress and not outcome else None,
            adapter_version=outcome.adapter_version if outcome else None,
            adapter_sha256=outcome.adapter_sha256 if outcome else None,
            reason=outcome.reason if outcome else None,
            counts=outcome.counts if outcome else progress.counts if progress else {},
            metrics=outcome.metrics if outcome else {},
        )

    def detail(self, adapters_dir: Path) -> RunDetail:
        """Return the view with the curves: those beside its adapter, or of its progress. Blocks on the disk."""
        view = self.view
        curves: dict[str, list[Point]] = {}
        if view.adapter_version is not None:  # its folder may be gone
            curves = training_report(adapters_dir / view.agent_id / view.adapter_version, view.adapter_version).curves
        if not curves and self.progress is not None:
            curves = self.progress.curves
        return RunDetail(**dict(view), curves=curves)


def _reason(request: TrainRequest) -> str | None:
    """Return the reason that an orchestrator gives with its request."""
    reason = (request.metadata.model_extra or {}).get("reason")
    return reason if isinstance(reason, str) else None


def place_of_run(view: RunView) -> tuple[str, str]:
    """Return the key that lists of runs are ordered by: when it was asked for, or else ended, and its id."""
    at = view.asked_at or view.ended_at
    return at.isoformat(timespec="microseconds") if at else "", view.run_id
