"""/v1/evaluations: what `ratchet eval` has found, as a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query

from ratchet.adapters.evaluations import all_evaluations, leaderboard
from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.http.problem import problems
from ratchet.http.work import Threads
from ratchet.logs.tenants import AgentTenants
from schemas.api.experiments import Standing
from schemas.api.page import Page
from schemas.messages.base import AgentId


def evaluations_router(adapters_dir: Path, agents: Sequence[str], tenants: AgentTenants, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["evaluations"])

    @router.get("/v1/evaluations", responses=problems(422, 503))
    @operation(VIEWER, OPERATOR, reach="own", title="List evaluations")
    async def evaluations(
        caller: CallerOf, agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None
    ) -> Page[Standing]:
        """List how programs and versions did on sets of tasks that no training sees, as a leaderboard: the set that was
        evaluated last first, ranks by interval so that ties share one, and the cost of a solved task.
        """
        shown = [one for one in agents if agent_id in (None, one) and caller.may_use(tenants.of(one))]

        def read() -> list[Standing]:
            return leaderboard(found for one in shown for found in all_evaluations(adapters_dir, one))

        return Page(items=await threads.run(read), next=None)

    return router
