"""From the lines of a job to its tasks. Pure.

A task's id is `<job>/<number>`, and `<job>/<number>/<attempt>` when it is run again: the fleet answers an id once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import ValidationError

from ratchet.http.problem import Problem
from ratchet.logs.tenants import own_id
from ratchet.service.prices import AgentPrices, with_limits
from schemas.api.jobs import JobKind
from schemas.messages.base import KeptApart, Metadata, explain
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest

BAD_LINE = "bad-line"
"""The type of the problem that refuses a job for one of its lines."""
REFUSED = {
    "work_to": "a job's tasks are answered by the fleet",
    "registered_agent": "name it as the job's agent",
    "profile": "the job's budget would not hold what other providers cost",
    "evaluation": "the fleet sends no Result of such a task: use `ratchet eval`",
}
"""Fields that a job's task can't have, and why."""

OF_RUNS = ("algorithm", "parent_version", "since", "until", "feedback_until", "hyperparameters", "seed")
"""Fields that a training run of a job may have."""


class NewTask(NamedTuple):
    n: int
    own_id: str | None
    body: str


class JobTerms(NamedTuple):
    """The part of a job that its tasks take over."""

    agent_id: str
    kind: str
    samples: int | None
    priority: int


def task_id_of(job_id: str, n: int, attempt: int) -> str:
    return f"{job_id}/{n}" if attempt == 1 else f"{job_id}/{n}/{attempt}"


def parse_task_id(task_id: str) -> tuple[str, int, int]:
    """Return the job, the number and the attempt. Raises ValueError for what is no task of a job."""
    own = own_id(task_id)
    job_id, n, *attempt = own.split("/")
    return task_id.removesuffix(own) + job_id, int(n), int(attempt[0]) if attempt else 1


def read_tasks(lines: Sequence[Mapping[str, Any] | str], job_id: str, job: JobTerms, first: int) -> Iterator[NewTask]:
    """Yield the tasks, the first with the number `first`. Raises Problem naming the first line that is no task."""
    if job.kind == JobKind.TRAINING:
        yield from _read_runs(lines, job_id, job.agent_id, first)
        return
    given: dict[str, Any] = {"agent_id": job.agent_id, "priority": job.priority - 1}
    samples = job.samples
    if job.kind == JobKind.EVALUATION:
        given["kept_apart"], samples = True, samples or 1
    for n, line in enumerate(lines, start=first):
        fields = {"input": line} if isinstance(line, str) else {k: v for k, v in line.items() if v is not None}
        if (fault := _fault_in(fields, job.agent_id)) is not None:
            raise refusal(n, fault)
        own_id = fields.pop("task_id", None)
        try:
            task = Task(**{"samples": samples, **fields, **given, "task_id": task_id_of(job_id, n, 1)})
        except (ValidationError, TypeError) as error:
            raise refusal(n, explain(Task.TYPE, error) if isinstance(error, ValidationError) else str(error)) from None
        yield NewTask(n, None if own_id is None else str(own_id)[:200], task.encode().decode())


def _read_runs(lines: Sequence[Mapping[str, Any] | str], job_id: str, agent_id: str, first: int) -> Iterator[NewTask]:
    for n, line in enumerate(lines, start=first):
        if isinstance(line, str) or (strange := sorted(set(line) - set(OF_RUNS))):
            about = "a text" if isinstance(line, str) else f"{strange[0][:63]!r}"
            raise refusal(n, f"it has {about}, and a training run has {', '.join(OF_RUNS)}")
        fields = {name: value for name, value in line.items() if value is not None}
        run_id = task_id_of(job_id, n, 1)
        try:
            run = TrainRequest(
                **fields, request_id=run_id, agent_id=agent_id, metadata=Metadata(source=f"job:{job_id}")
            )
        except (ValidationError, TypeError) as error:
            why = explain(TrainRequest.TYPE, error) if isinstance(error, ValidationError) else str(error)
            raise refusal(n, why) from None
        yield NewTask(n, None, run.encode().decode())


def _fault_in(fields: Mapping[str, Any], agent_id: str) -> str | None:
    if fields.get("agent_id", agent_id) != agent_id:
        return f"it names the agent {str(fields['agent_id'])[:63]!r}, and the job is for {agent_id!r}"
    return next((f"it has {name!r}: {why}" for name, why in REFUSED.items() if name in fields), None)


def refusal(n: int, fault: str) -> Problem:
    detail = f"line {n + 1}: {fault}. The job is refused whole, and none of its tasks is run"
    return Problem(422, "Not a job", detail, BAD_LINE)


class Route(NamedTuple):
    """The way of a registered agent's tasks to the fleet: by whose model, by which version, and how apart."""

    model: str
    adapter_version: str | None
    kept_apart: KeptApart


def read_body(body: str, kind: str, prices: AgentPrices | None) -> Task | TrainRequest:
    """Return what a job of this kind stores as a task: a task, with a bound on its cost, or a training run."""
    if kind == JobKind.TRAINING:
        return TrainRequest.decode(body)
    task = Task.decode(body)
    return task if prices is None else with_limits(task, prices)


def task_to_release(
    body: str, kind: str, task_id: str, deadline: float, prices: AgentPrices | None, route: Route | None = None
) -> Task | TrainRequest:
    """Return the task as it goes to the fleet: it expires with its job, if not before, and its cost has a bound.

    `route`: of a registered agent's.
    """
    task = read_body(body, kind, prices)
    if isinstance(task, TrainRequest):
        return task.model_copy(update={"request_id": task_id} | ({} if route is None else _of_route(task, route)))
    if route is not None:
        version = route.adapter_version or task.adapter_version
        by_program = {"agent_id": route.model, "registered_agent": task.agent_id, "adapter_version": version}
        task = task.model_copy(update=by_program | {"kept_apart": task.kept_apart or route.kept_apart})
    until = datetime.fromtimestamp(deadline, UTC)
    wanted = {"task_id": task_id, "deadline": min(task.deadline or until, until), "needs_usage": True}
    return task.model_copy(update=wanted)


def _of_route(run: TrainRequest, route: Route) -> dict[str, Any]:
    """Return what a training run of a registered agent has of it: of a research agent, where it starts, too."""
    if route.kept_apart is None:
        return {"agent_id": route.model}
    parent = run.parent_version or route.adapter_version
    return {"agent_id": route.model, "research_agent": run.agent_id, "parent_version": parent}
