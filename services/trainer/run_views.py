"""Runs on disk as the API shows them. Blocks on the disk; what a run in hand tells is added by whoever knows it."""

from __future__ import annotations

from pathlib import Path

from schemas.adapter_trained import AdapterTrained
from schemas.api.runs import RunDetail, RunState, RunView
from services.adapters.training_runs import training_run
from services.trainer.jobs import Job
from services.trainer.standing import RunStanding


def run_detail(job: Job, adapters_dir: Path, standing: RunStanding | None) -> RunDetail:
    """Raises FileNotFoundError for a run whose record is just being removed; DecodeError for one that is damaged."""
    view = run_view(job, standing)
    if standing is not None and view.state == "running":
        curves = standing.curves()
    elif view.adapter_version is not None:
        folder = adapters_dir / view.agent_id / view.adapter_version  # it may have been archived: then without curves
        curves = training_run(folder, view.adapter_version).curves
    else:
        curves = {}
    return RunDetail(**dict(view), curves=curves)


def run_view(job: Job, standing: RunStanding | None) -> RunView:
    """`standing` is None for a run that is not in hand here. Raises as `run_detail` does."""
    request = job.resolved or job.request
    outcome = job.outcome
    asked_at = job.asked_at
    ended_at = outcome.metadata.timestamp if outcome else None
    attempts = job.attempts
    return RunView(
        run_id=request.request_id,
        agent_id=request.agent_id,
        state=_state(outcome, begun=standing is not None or attempts > 0),
        algorithm=request.algorithm,
        parent_version=request.parent_version or (outcome.parent_version if outcome else None),
        hyperparameters=request.hyperparameters,
        seed=request.seed,
        asked_at=asked_at,
        ended_at=ended_at,
        seconds=max(0.0, (ended_at - asked_at).total_seconds()) if ended_at else None,
        attempts=attempts,
        progress=standing.progress if standing is not None and outcome is None else None,
        adapter_version=outcome.adapter_version if outcome else None,
        adapter_sha256=outcome.adapter_sha256 if outcome else None,
        reason=outcome.reason if outcome else None,
        counts=outcome.counts if outcome else dict(standing.counts) if standing else {},
        metrics=outcome.metrics if outcome else {},
    )


def _state(outcome: AdapterTrained | None, *, begun: bool) -> RunState:
    if outcome is not None:
        return outcome.status
    return "running" if begun else "queued"
