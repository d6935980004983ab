"""/v1/queues: every queue of the fleet and the retry ladder, as the broker sees them."""

from __future__ import annotations

from fastapi import APIRouter

from ratchet.bus.protocol import QueueState
from ratchet.bus.topology import Queue, Rung, Topology
from ratchet.http.problem import problems
from schemas.api.queues import Queues, QueueView
from services.orchestrator.observation.queue_snapshots import QueueSnapshot, QueueSnapshots

NONE_THERE = QueueState(0, 0)


def queues_router(looks: QueueSnapshots, topology: Topology) -> APIRouter:
    router = APIRouter(tags=["queues"])

    @router.get("/v1/queues", responses=problems(503))
    async def queues() -> Queues:
        """Every queue: what it is for, what waits in it, who consumes it. The retry ladder comes last."""
        look = await looks.look()
        items = [_queue(queue, look) for queue in topology.queues] + [_rung(rung, look) for rung in topology.rungs]
        return Queues(at=look.at, items=items)

    return router


def _queue(queue: Queue, look: QueueSnapshot) -> QueueView:
    state = look.states.get(queue.name)
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


def _rung(rung: Rung, look: QueueSnapshot) -> QueueView:
    state = look.states.get(rung.name)
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
