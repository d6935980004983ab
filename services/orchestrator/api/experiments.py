"""/v1/experiments: what was tried on live traffic, how it stands. /v1/evaluations: what `ratchet eval` has found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as InPath

from ratchet.adapters.evaluations import all_evaluations, leaderboard
from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, VIEWER, operation
from ratchet.http.paging import Cursor, Limit, cursor_of, sequence_of
from ratchet.http.problem import Problem, problems
from ratchet.http.work import Threads
from ratchet.logs.tenants import AgentTenants
from schemas.api.experiments import ExperimentDetail, ExperimentSummary, Standing
from schemas.api.page import Page
from schemas.messages.base import AgentId
from services.orchestrator.observation.experiment_views import ExperimentViews
from services.orchestrator.observation.watcher import DecisionBook

ExperimentId = Annotated[str, InPath(description="As in the list; it may hold slashes.")]


def experiments_router(book: DecisionBook, views: ExperimentViews, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["experiments"])

    @router.get("/v1/experiments", responses=problems(422, 503))
    @operation(VIEWER, OPERATOR, title="List experiments", tool="list_experiments")
    async def experiments(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Page[ExperimentSummary]:
        """List experiments, canaries and watches, the newest first: which version was tried against which, and how it
        ended.
        """
        before = sequence_of(cursor)
        records = [
            record
            for record in reversed(await threads.run(book.experiments))
            if agent_id in (None, record.agent_id) and (before is None or record.began.sequence < before)
        ]
        following = cursor_of([records[limit - 1].began.sequence]) if len(records) > limit else None
        return Page(items=[one.summary() for one in records[:limit]], next=following)

    @router.get("/v1/experiments/{experiment_id:path}", responses=problems(404, 503))
    @operation(VIEWER, OPERATOR, title="Show an experiment", tool="experiment_status", resource="experiments")
    async def experiment(experiment_id: ExperimentId) -> ExperimentDetail:
        """Show one experiment: its plan, the verdict so far with its reason, the e-values (gain at the plan's
        promote_at promotes, harm at its roll_back_at rolls back), both arms' scores, and the band around the effect
        over its units. It may be read at any moment: looking does no harm to it.
        """
        record = await threads.run(book.experiment, experiment_id)
        if record is None:
            raise Problem(404, "No such experiment", "there was no experiment of this id", "unknown-experiment")
        return (await views.view(record)).detail()

    return router


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
