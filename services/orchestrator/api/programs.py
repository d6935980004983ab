"""/v1/programs: an agent's programs side by side, out of the log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ratchet.experiments.programs import ProgramBook
from ratchet.http.problem import problems
from ratchet.http.work import Threads
from schemas.api.programs import ProgramsCompared
from schemas.messages.base import AgentId


def programs_router(book: ProgramBook, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["programs"])

    @router.get("/v1/programs", responses=problems(422, 503))
    async def programs(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
    ) -> ProgramsCompared:
        """Each program's rollouts in the log: score with its interval, tokens, calls and time, breaks, and ends."""
        return await threads.run(book.compared, agent_id)

    return router
