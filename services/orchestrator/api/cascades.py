"""/v1/cascades: whose answers users get, what that costs, the evidence for the next step, and an operator's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path

from ratchet.http.access.guard import CallerOf
from ratchet.http.access.roles import Caller
from ratchet.http.operation import OPERATOR, VIEWER, Effect, operation
from ratchet.http.problem import Problem, problems
from ratchet.service.errors import NotFound
from schemas.api.adapters import FreezeRequest
from schemas.api.cascade import CascadeSet, CascadeView
from schemas.api.page import Page
from schemas.messages.base import AgentId
from schemas.records.decision import FreezeCascade, UnfreezeCascade
from services.orchestrator.api.adapters import OperatorMoves, recorded_name
from services.orchestrator.cascade.agent_cascade import AgentCascade

MOVED = problems(404, 409, 422, 503)
WhichAgent = Annotated[AgentId, Path(description="The agent that a big model answers in place of, such as 'small'.")]


def cascades_router(moves: OperatorMoves, agents: Mapping[str, AgentCascade]) -> APIRouter:
    """`agents`: those that have a cascade."""
    router = APIRouter(tags=["cascades"])

    def cascade_of(agent_id: str, caller: Caller) -> AgentCascade:
        one = agents.get(agent_id)
        if one is None or one.trial is None or not caller.may_change(moves.tenants.of(agent_id)):
            raise NotFound(f"no cascade of an agent {agent_id!r}: RATCHET_CASCADE names them")
        return one

    async def decide(agent_id: str, caller: Caller, move: FreezeCascade | UnfreezeCascade, reason: str) -> CascadeView:
        one = cascade_of(agent_id, caller)
        await moves.apply(agent_id, caller, lambda service: service.decide(move, reason))
        return one.view()

    @router.get("/v1/cascades", responses=problems(503))
    @operation(VIEWER, OPERATOR, reach="own", title="List cascades")
    async def cascades(caller: CallerOf) -> Page[CascadeView]:
        """List the agents in whose place a big model answers: the share that the small model answers, what that costs
        and saves, and the evidence for the next step.
        """
        usable = (
            one for name, one in agents.items() if caller.may_use(moves.tenants.of(name)) and one.trial is not None
        )
        return Page(items=[one.view() for one in usable], next=None)

    @router.post("/v1/cascades/{agent_id}/freeze", responses=MOVED)
    @operation(OPERATOR, effect=Effect.SETS, reach="own", title="Freeze a cascade", tool="freeze_cascade")
    async def freeze(agent_id: WhichAgent, asked: FreezeRequest, caller: CallerOf) -> CascadeView:
        """Stop the small model's share from rising; where it is proved to do harm it still falls."""
        return await decide(agent_id, caller, FreezeCascade(), asked.reason)

    @router.post("/v1/cascades/{agent_id}/unfreeze", responses=MOVED)
    @operation(OPERATOR, effect=Effect.SETS, reach="own", title="Unfreeze a cascade", tool="unfreeze_cascade")
    async def unfreeze(agent_id: WhichAgent, asked: FreezeRequest, caller: CallerOf) -> CascadeView:
        """Let the small model's share of the tasks rise again by proof, after a freeze."""
        return await decide(agent_id, caller, UnfreezeCascade(), asked.reason)

    @router.post("/v1/cascades/{agent_id}/share", responses=MOVED)
    @operation(OPERATOR, effect=Effect.REPLACES, reach="own", title="Set a cascade's share", tool="set_cascade")
    async def share(agent_id: WhichAgent, asked: CascadeSet, caller: CallerOf) -> CascadeView:
        """Set the share that the small model answers, by hand and without a proof; the evidence begins anew."""
        one = cascade_of(agent_id, caller)
        try:
            await one.set_share(asked.share, recorded_name(caller), asked.reason)
        except ValueError as error:
            raise Problem(422, "No such share", str(error), "no-such-share") from None
        return one.view()

    return router
