"""/v1/agreement and /v1/labels: judge, auditor and people beside each other; an answer to label, and its label."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Body, Query

from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, VIEWER, Effect, operation
from ratchet.http.problem import Problem, problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key
from schemas.api.feedback import Agreement, GivenLabel, NextToLabel, TakenLabel
from schemas.messages.base import AgentId
from services.orchestrator.auditing.labels import Calibrations, IdUsedBefore, NoSuchAnswers

ROUTE = "POST /v1/labels"


def agreement_router(calibrations: Calibrations) -> APIRouter:
    router = APIRouter(tags=["agreement"])

    @router.get("/v1/agreement", responses=problems(503))
    @operation(VIEWER, OPERATOR)
    async def agreement() -> Agreement:
        """Show the agreement of scorer and auditor over time, and of each of them with the labels that people gave."""
        return calibrations.agreement()

    @router.get("/v1/labels/next", responses=problems(422, 503))
    @operation(VIEWER, OPERATOR)
    async def following(
        caller: CallerOf,
        pairs: Annotated[bool, Query(description="Two answers of a task instead of one.")] = False,
        skip: Annotated[int, Query(ge=0, le=1000, description="Pass over so many.")] = 0,
        agent_id: Annotated[AgentId | None, Query(description="Only this agent's.")] = None,
    ) -> NextToLabel:
        """Show an answer that the caller has not labelled yet, of the newest; blind to its version and to scores."""
        found = await calibrations.next(caller.name, pairs=pairs, skip=skip, agent_id=agent_id)
        return NextToLabel(found=found)

    @router.post("/v1/labels", responses=problems(404, 409, 422, 503))
    @operation(OPERATOR, effect=Effect.WORKS)
    async def label(
        given: Annotated[GivenLabel, Body()], caller: CallerOf, idempotency_key: IdempotencyKey = None
    ) -> TakenLabel:
        """Label an answer: it is compared with the scores of scorer and auditor, and changes nothing else."""
        key = id_from_key(caller, ROUTE, idempotency_key) if idempotency_key else f"label-{uuid.uuid4().hex}"
        try:
            taken = await calibrations.take(given, given.label_id or key, caller.name)
        except NoSuchAnswers as error:
            raise Problem(404, "No such answer", str(error), "unknown-answer") from None
        except IdUsedBefore as error:
            raise Problem(409, "Id used before", str(error), "id-used") from None
        return TakenLabel(label_id=taken.label_id)

    return router
