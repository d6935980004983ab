"""/v1/rollouts: what programs are at now, over all runners."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.http.problem import problems
from schemas.api.rollouts import FleetRollouts
from schemas.messages.base import AgentId, Identifier
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
