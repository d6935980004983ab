"""/v1/programs: an agent's programs side by side, out of the log; where each stands, and an operator's moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from ratchet.adapters.agent_view import programs_standing
from ratchet.adapters.operator_service import OperatorService, chosen_agents, require_known
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.programs import ProgramBook
from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.problem import problems
from ratchet.http.work import Threads
from schemas.api.programs import ProgramRequest, ProgramRollBackRequest, ProgramsCompared, ProgramsStanding
from schemas.messages.base import AgentId
from schemas.records.decision import TryProgram
from schemas.records.registry import Registry
from services.orchestrator.api.adapters import MOVED, recorded_name
from services.orchestrator.promotion.arms import ReadRegistry

Told = Callable[[str], Sequence[Mapping[str, str]]]
"""Each runner's programs of an agent, name → revision."""


def programs_router(
    book: ProgramBook,
    store: RegistryStore,
    agents: tuple[str, ...],
    max_rank: int,
    told: Told,
    threads: Threads,
    read_registry: ReadRegistry,
) -> APIRouter:
    router = APIRouter(tags=["programs"])

    def declared_names(agent_id: str) -> set[str]:
        return {name for one in told(agent_id) for name in one}

    async def apply_move(
        agent_id: str, caller: Caller, move: Callable[[OperatorService], Registry]
    ) -> ProgramsStanding:
        """Apply a move; it is in effect when this returns, in other threads than those that read."""
        (name,) = chosen_agents(agents, await asyncio.to_thread(store.read), agent_id)
        service = OperatorService(store, name, max_rank, recorded_name(caller))
        registry = await asyncio.to_thread(move, service)
        await read_registry(name)
        return programs_standing(registry, name, told(name))

    @router.get("/v1/programs", responses=problems(404, 422, 503))
    async def programs(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
    ) -> ProgramsCompared:
        """Each program's rollouts in the log: score with its interval, tokens, calls and time, breaks, and ends."""
        found = await threads.run(book.compared, agent_id)
        if not found.items:  # the log may have agents that are no longer anybody's
            chosen_agents(agents, await threads.run(store.read), agent_id)
        return found

    @router.get("/v1/programs/{agent_id}", responses=problems(404, 422, 503))
    async def standing(agent_id: AgentId) -> ProgramsStanding:
        """The program that answers an agent's tasks by default, the one that is tried, and how experiments ended."""
        registry = await threads.run(store.read)
        (name,) = chosen_agents(agents, registry, agent_id)
        return programs_standing(registry, name, told(name))

    @router.post("/v1/programs/{agent_id}/try", responses=MOVED)
    async def try_(agent_id: AgentId, asked: ProgramRequest, caller: CallerOf) -> ProgramsStanding:
        """Ask for an experiment of a program against the one that answers by default; what proves better takes over."""
        require_known(asked.program, declared_names(agent_id))
        return await apply_move(
            agent_id, caller, lambda service: service.decide(TryProgram(program=asked.program), asked.reason)
        )

    @router.post("/v1/programs/{agent_id}/promote", responses=MOVED)
    async def promote(agent_id: AgentId, asked: ProgramRequest, caller: CallerOf) -> ProgramsStanding:
        """Have a program answer by default at once, without an experiment; a watch begins."""
        require_known(asked.program, declared_names(agent_id))
        return await apply_move(
            agent_id, caller, lambda service: service.promote("programs", asked.program, asked.reason)
        )

    @router.post("/v1/programs/{agent_id}/rollback", responses=MOVED)
    async def rollback(agent_id: AgentId, asked: ProgramRollBackRequest, caller: CallerOf) -> ProgramsStanding:
        """Take a program out of traffic at once, or call its experiment off. Works while frozen, too."""
        return await apply_move(
            agent_id, caller, lambda service: service.roll_back("programs", asked.program, asked.reason)
        )

    return router
