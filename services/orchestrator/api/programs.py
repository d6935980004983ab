"""/v1/programs: an agent's programs side by side, out of the log; where each stands, and an operator's moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from ratchet.adapters.agent_view import programs_standing
from ratchet.adapters.operator_service import OperatorService, chosen_agents, require_known
from ratchet.experiments.programs import ProgramBook
from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.operation import OPERATOR, VIEWER, Effect, operation
from ratchet.http.problem import problems
from ratchet.http.work import Threads
from schemas.api.programs import ProgramRequest, ProgramRollBackRequest, ProgramsCompared, ProgramsStanding
from schemas.messages.base import AgentId
from schemas.records.decision import TryProgram
from schemas.records.registry import Registry
from services.orchestrator.api.adapters import MOVED, OperatorMoves, WhichAgent

Told = Callable[[str], Sequence[Mapping[str, str]]]
"""Each runner's programs of an agent, name → revision."""


def programs_router(moves: OperatorMoves, book: ProgramBook, told: Told, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["programs"])

    def declared_names(agent_id: str) -> set[str]:
        return {name for one in told(agent_id) for name in one}

    async def apply_move(
        agent_id: str, caller: Caller, move: Callable[[OperatorService], Registry]
    ) -> ProgramsStanding:
        return programs_standing(await moves.apply(agent_id, caller, move), agent_id, told(agent_id))

    @router.get("/v1/programs", responses=problems(404, 422, 503))
    @operation(VIEWER, OPERATOR, title="Compare programs", tool="compare_programs")
    async def programs(
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
    ) -> ProgramsCompared:
        """Compare the programs that answer an agent's tasks, out of the log: mean score with its interval, calls,
        tokens and seconds of a rollout, how rollouts ended, what broke their conversations. It is no experiment:
        programs may have answered different tasks.
        """
        found = await threads.run(book.compare, agent_id)
        if not found.items:  # the log may have agents that are no longer anybody's
            chosen_agents(moves.agents, await threads.run(moves.store.read), agent_id)
        return found

    @router.get("/v1/programs/{agent_id}", responses=problems(404, 422, 503))
    @operation(VIEWER, OPERATOR, title="Show where programs stand", tool="programs_standing")
    async def standing(agent_id: WhichAgent) -> ProgramsStanding:
        """Show which of an agent's programs answers by default (primary), which is tried against it (candidate), the
        experiment that runs, how earlier ones ended, and which programs runners have.
        """
        registry = await threads.run(moves.store.read)
        (name,) = chosen_agents(moves.agents, registry, agent_id)
        return programs_standing(registry, name, told(name))

    @router.post("/v1/programs/{agent_id}/try", responses=MOVED)
    @operation(OPERATOR, effect=Effect.ADDS, title="Try a program", tool="try_program")
    async def try_(agent_id: WhichAgent, asked: ProgramRequest, caller: CallerOf) -> ProgramsStanding:
        """Ask for an experiment of a program against the one that answers by default, on a share of the traffic that
        grows. It takes over only once it is proved better.
        """
        require_known(asked.program, declared_names(agent_id))
        return await apply_move(
            agent_id, caller, lambda service: service.decide(TryProgram(program=asked.program), asked.reason)
        )

    @router.post("/v1/programs/{agent_id}/promote", responses=MOVED)
    @operation(OPERATOR, effect=Effect.REPLACES, title="Promote a program", tool="promote_program")
    async def promote(agent_id: WhichAgent, asked: ProgramRequest, caller: CallerOf) -> ProgramsStanding:
        """Have a program answer all of an agent's tasks at once, by hand and without proof. A watch begins: the program
        before it keeps a small share and can still win.
        """
        require_known(asked.program, declared_names(agent_id))
        return await apply_move(
            agent_id, caller, lambda service: service.promote("programs", asked.program, asked.reason)
        )

    @router.post("/v1/programs/{agent_id}/rollback", responses=MOVED)
    @operation(OPERATOR, effect=Effect.REPLACES, title="Roll a program back", tool="rollback_program")
    async def rollback(agent_id: WhichAgent, asked: ProgramRollBackRequest, caller: CallerOf) -> ProgramsStanding:
        """Take a program out of the traffic at once: a candidate ends its experiment, the one that answers by default
        is replaced by the one before it. Works while frozen, too.
        """
        return await apply_move(
            agent_id, caller, lambda service: service.roll_back("programs", asked.program, asked.reason)
        )

    return router
