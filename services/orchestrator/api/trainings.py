"""/v1/trainings: every training run that was asked for, how the present one goes, and why others came to nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ratchet.http.paging import Cursor, Limit
from ratchet.http.problem import Problem, problems
from ratchet.training_runs.pages import run_page
from schemas.api.page import Page
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.messages.base import AgentId
from services.orchestrator.training.runs import TrainingRuns

RunId = Annotated[str, Path(description="As in the list; it may hold slashes.")]


def trainings_router(runs: TrainingRuns) -> APIRouter:
    router = APIRouter(tags=["trainings"])

    @router.get("/v1/trainings", responses=problems(422, 503))
    async def trainings(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
        state: Annotated[RunState | None, Query(description="Only in this state.")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[RunView]:
        """Training runs, by whomever they were asked for, the newest first; of those that ended the last 100 an agent.

        A request that waits in the queue `training` is there once a trainer has taken it, the fleet's own before.
        """
        return run_page(await runs.views(agent_id, state), cursor, limit)

    @router.get("/v1/trainings/{run_id:path}", responses=problems(404, 503))
    async def training(run_id: RunId) -> RunDetail:
        """One run: its state and why, the data it used and left out, its curves, also while it goes."""
        found = await runs.detail(run_id)
        if found is None:
            raise Problem(404, "No such training", "no training run of that id is known here", "unknown-training")
        return found

    return router
