"""/v1/rollouts: what programs are at now, over all runners."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ratchet.http.problem import problems
from schemas.api.rollouts import FleetRollouts
from schemas.messages.base import AgentId, Identifier
from services.orchestrator.observation.rollouts_now import RolloutsNow


def rollouts_router(rollouts: RolloutsNow) -> APIRouter:
    router = APIRouter(tags=["programs"])

    @router.get("/v1/rollouts", responses=problems(422))
    async def now(
        task_id: Annotated[Identifier | None, Query(description="Only this task's.")] = None,
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
    ) -> FleetRollouts:
        """The rollouts that run, with what each has taken so far, and how the newest ended; a second old at most."""
        return rollouts.now(task_id, agent_id)

    return router
