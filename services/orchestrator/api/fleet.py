"""/v1/status, /v1/queues and /v1/log: the fleet at a glance, what waits, and the last lines of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError

from ratchet.bus.protocol import QueueState
from ratchet.bus.retry_policy import Rung
from ratchet.bus.topology import Queue, Topology
from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.http.problem import problems
from ratchet.http.work import Threads
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import active_tail
from schemas.api.programs import FleetRollouts
from schemas.api.status import LogLine, LogTail, Queues, QueueView, Status
from schemas.messages.base import AgentId, Identifier
from services.orchestrator.observation.gauges import QueueSnapshot, QueueSnapshots
from services.orchestrator.observation.overview import Overview
from services.orchestrator.observation.rollouts_now import RolloutsNow


def rollouts_router(rollouts: RolloutsNow) -> APIRouter:
    router = APIRouter(tags=["programs"])

    @router.get("/v1/rollouts", responses=problems(422))
    @operation(VIEWER, OPERATOR, title="List rollouts", tool="list_rollouts")
    async def now(
        task_id: Annotated[Identifier | None, Query(description="Only this task's.")] = None,
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
    ) -> FleetRollouts:
        """List the rollouts that run now, over all runners, with their calls of the model and tokens so far, and how
        the newest that ended did; a second old at most.
        """
        return rollouts.now(task_id, agent_id)

    return router


def status_router(overview: Overview) -> APIRouter:
    router = APIRouter(tags=["status"])

    @router.get("/v1/status", responses=problems(503))
    @operation(VIEWER, OPERATOR, title="Show the fleet at a glance", tool="fleet_status", resource="status")
    async def status() -> Status:
        """Show the fleet at a glance: is it ready and if not why, tasks open and answered, seconds at each stage,
        scores by adapter version, each agent's primary, candidate and experiment, dead letters. The first thing to look
        at.
        """
        return await overview.status()

    return router


NONE_THERE = QueueState(0, 0)


def queues_router(snapshots: QueueSnapshots, topology: Topology) -> APIRouter:
    router = APIRouter(tags=["queues"])

    @router.get("/v1/queues", responses=problems(503))
    @operation(VIEWER, OPERATOR, title="Show the queues", tool="queues")
    async def queues() -> Queues:
        """Show every queue: what it is for, how many messages wait and how many consumers it has. Messages without
        consumers mean that a service is away. The retry queues, which come last, say what is being tried again.
        """
        snapshot = await snapshots.latest()
        queues = [_queue(queue, snapshot) for queue in topology.queues]
        return Queues(at=snapshot.at, items=queues + [_rung(rung, snapshot) for rung in topology.rungs])

    return router


def _queue(queue: Queue, snapshot: QueueSnapshot) -> QueueView:
    state = snapshot.states.get(queue.name)
    return QueueView(
        name=queue.name,
        about=queue.about,
        message=queue.message,
        producers=list(queue.producers),
        consumers=list(queue.consumers),
        messages=state.messages if state else None,
        consuming=(state or NONE_THERE).consumers,
        max_length=queue.max_length,
        retry_after_s=None,
    )


def _rung(rung: Rung, snapshot: QueueSnapshot) -> QueueView:
    state = snapshot.states.get(rung.name)
    seconds = rung.delay_ms / 1000
    return QueueView(
        name=rung.name,
        about=f"What failed waits here for {seconds:g} s, then goes back to where it failed.",
        message="any",
        producers=["all services"],
        consumers=["broker"],
        messages=state.messages if state else None,
        consuming=(state or NONE_THERE).consumers,
        max_length=None,
        retry_after_s=seconds,
    )


def log_router(logs_dir: Path, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["log"])

    @router.get("/v1/log", responses=problems(503))
    @operation(VIEWER, OPERATOR, title="Show the log's tail", resource="log/tail")
    async def log(limit: Annotated[int, Query(ge=1, le=200, description="Lines, the newest of them.")] = 50) -> LogTail:
        """Show the log's tail, the newest last: what was asked, answered and scored, by which adapter version."""
        return LogTail(items=await threads.run(_tail, logs_dir, limit))

    return router


def _tail(folder: Path, count: int) -> list[LogLine]:
    found = (_line(data) for data in active_tail(folder, INTERACTIONS, count))
    return [line for line in found if line is not None]


def _line(data: bytes) -> LogLine | None:
    """None for a line that can't be read: the orchestrator says so at its start, and sets it aside."""
    try:
        return LogLine.model_validate_json(data)
    except ValidationError:
        return None
