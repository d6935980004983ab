"""Runs as the API shows them: from their folders, from a request nobody has taken yet, from an end that was heard."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from ratchet.adapters.training_report import Point, training_run
from ratchet.training_runs.progress import RunProgressRecord, read_progress
from ratchet.training_runs.store import Job
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.train_request import TrainRequest


def run_view(job: Job) -> RunView:
    """Blocks. Raises FileNotFoundError for a run whose record is just being removed; DecodeError for a damaged one."""
    outcome = job.outcome
    request = job.resolved or job.request
    asked_at = min(job.asked_at, request.metadata.timestamp or job.asked_at)
    if outcome is not None:
        return ended_view(outcome, request, asked_at, job.attempts)
    attempts = job.attempts
    standing = read_progress(job.progress) if attempts else None
    return open_view(request, asked_at, "running" if attempts else "queued", attempts, standing)


def open_view(
    request: TrainRequest,
    asked_at: datetime,
    state: RunState = "queued",
    attempts: int = 0,
    standing: RunProgressRecord | None = None,
) -> RunView:
    """Of a run without an end; by itself, of one that no trainer has taken yet."""
    return RunView(
        run_id=request.request_id,
        agent_id=request.agent_id,
        state=state,
        asked_by=request.metadata.source,
        why=_why(request),
        algorithm=request.algorithm,
        parent_version=request.parent_version,
        hyperparameters=request.hyperparameters,
        seed=request.seed,
        asked_at=asked_at,
        ended_at=None,
        seconds=None,
        attempts=attempts,
        progress=standing.progress if standing else None,
        adapter_version=None,
        adapter_sha256=None,
        reason=None,
        counts=standing.counts if standing else {},
        metrics={},
    )


def ended_view(
    outcome: AdapterTrained, request: TrainRequest | None, asked_at: datetime | None, attempts: int = 0
) -> RunView:
    """`request`: None where a trainer of another make keeps it to itself."""
    ended_at = outcome.metadata.timestamp
    lasted = (ended_at - asked_at).total_seconds() if ended_at and asked_at else None
    return RunView(
        run_id=outcome.request_id,
        agent_id=outcome.agent_id,
        state=outcome.status,
        asked_by=request.metadata.source if request else None,
        why=_why(request) if request else None,
        algorithm=request.algorithm if request else None,
        parent_version=(request.parent_version if request else None) or outcome.parent_version,
        hyperparameters=request.hyperparameters if request else {},
        seed=request.seed if request else None,
        asked_at=asked_at,
        ended_at=ended_at,
        seconds=None if lasted is None else max(0.0, lasted),
        attempts=attempts,
        progress=None,
        adapter_version=outcome.adapter_version,
        adapter_sha256=outcome.adapter_sha256,
        reason=outcome.reason,
        counts=outcome.counts,
        metrics=outcome.metrics,
    )


def run_detail(view: RunView, adapters_dir: Path, job: Job | None) -> RunDetail:
    """`job`: None where there is no folder of it. Blocks."""
    curves: dict[str, list[Point]] = {}
    if view.adapter_version is not None:  # its folder may be gone
        curves = training_run(adapters_dir / view.agent_id / view.adapter_version, view.adapter_version).curves
    if not curves and job is not None and (standing := read_progress(job.progress)) is not None:
        curves = standing.curves
    return RunDetail(**dict(view), curves=curves)


def _why(request: TrainRequest) -> str | None:
    """The reason an orchestrator gives with its request."""
    why = (request.metadata.model_extra or {}).get("reason")
    return why if isinstance(why, str) else None
