"""The training runs that jobs have asked for: how far they are, by the fleet's folder of adapters, and their ends.

A run is asked for by a message to the trainer, and its folder is its record (ratchet/runs/store.py). It has ended for
its job once the orchestrator has registered its version.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, select, update

from ratchet.adapters.registry import RegistryStore
from ratchet.runs.run import TrainingRun
from ratchet.runs.store import RunFolder, RunStore
from schemas.api.jobs import JobKind, JobState, TaskState
from schemas.messages.result import Result
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.registry import Registry
from services.manager.agent_store import registrations
from services.manager.submission import task_id_of, task_to_release
from services.manager.tables import jobs, tasks


class OpenRun(NamedTuple):
    """A run that was released. `ends`: how its job has ended before it, if it has."""

    job_id: str
    request: TrainRequest
    ends: JobState | None


class Look(NamedTuple):
    """The ends of runs, and of each job with a run that is under way how far that is."""

    results: list[Result]
    stages: dict[str, str]


def open_runs(connection: Connection, now: float) -> list[OpenRun]:
    rows = connection.execute(
        select(tasks.c.n, tasks.c.attempt, tasks.c.body, jobs.c.job_id, jobs.c.kind, jobs.c.state, jobs.c.agent_id)
        .join(jobs, jobs.c.job_id == tasks.c.job_id)
        .where(jobs.c.kind == JobKind.TRAINING, jobs.c.released > 0, tasks.c.state == TaskState.RELEASED)
        .order_by(tasks.c.job_id, tasks.c.n)
    ).all()
    registered = registrations(connection, now) if rows else {}
    found = []
    for row in rows:
        route = registered[row.agent_id].route if row.agent_id in registered else None
        run_id = task_id_of(row.job_id, row.n, row.attempt)
        request = task_to_release(row.body, row.kind, run_id, now, None, route)
        assert isinstance(request, TrainRequest)
        state = JobState[row.state.upper()]
        found.append(OpenRun(row.job_id, request, state if state.has_ended else None))
    return found


def look_at_runs(adapters_dir: Path, runs: Iterable[OpenRun]) -> Look:
    """Read how far runs are, and cancel those whose job has ended. Blocks on the disk.

    Raises OSError, DecodeError, RegistryError.
    """
    store, registry = RunStore(adapters_dir), RegistryStore(adapters_dir).read()
    look = Look([], {})
    for one in runs:
        folder = store.folder(one.request.agent_id, one.request.request_id)
        if one.ends is not None and folder.outcome is None:
            _cancel(store, one, folder)
        try:
            run = folder.run
        except FileNotFoundError:
            look.stages.setdefault(one.job_id, f"run {one.request.request_id} waits for a trainer")
            continue
        if run.outcome is None:
            look.stages[one.job_id] = f"run {one.request.request_id}: {_stage(run)}"
        elif (result := _result(run.outcome, one, registry)) is not None:
            look.results.append(result)
    return look


def show_stages(connection: Connection, stages: dict[str, str]) -> None:
    """Have the reason of each running job say how far its newest run is."""
    for job_id, stage in stages.items():
        its = (jobs.c.job_id == job_id) & (jobs.c.state == JobState.RUNNING)
        connection.execute(update(jobs).where(its).values(reason=stage))


def _cancel(store: RunStore, one: OpenRun, folder: RunFolder) -> None:
    """End it at once where no trainer has begun it. One whose request is still on its way is recorded as ended."""
    store.record(one.request)
    folder.cancel(f"job {one.job_id}")


def _stage(run: TrainingRun) -> str:
    if run.progress is None:
        return "it waits for a trainer" if not run.attempts else "it begins"
    progress = run.progress.progress
    return progress.stage if not progress.steps else f"{progress.stage}, step {progress.step} of {progress.steps}"


def _result(outcome: AdapterTrained, one: OpenRun, registry: Registry) -> Result | None:
    """Return the end of a run; None where its version is not registered yet."""
    task_id = one.request.request_id
    if outcome.status != "trained":
        status = {None: "failed", JobState.EXPIRED: "expired"}.get(one.ends, "cancelled")
        return Result.model_validate({"task_id": task_id, "status": status, "reason": outcome.reason})
    version = str(outcome.adapter_version)
    entry = registry.agent(outcome.agent_id).versions.get(version)
    if entry is None:
        return None
    if entry.sha256 is None:
        why = f"{version} was trained and could not be registered: see `ratchet adapters show {version}`"
        return Result(task_id=task_id, status="failed", reason=why)
    return Result(task_id=task_id, agent_id=outcome.agent_id, adapter_version=version)
