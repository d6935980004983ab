"""/v1/approvals: what rollouts asked people; and an answer, after which the rollout goes on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, OWN_TASKS, VIEWER, Effect, operation
from ratchet.http.problem import Problem, problems
from schemas.api.feedback import Approval, Approvals, GivenDecision
from schemas.messages.base import Identifier
from services.orchestrator.approvals.approval_service import (
    AnsweredBefore,
    ApprovalService,
    NotEditable,
    UnknownApproval,
)

TheQuestion = Annotated[Identifier, Path(description="The question's id, as the list has it.")]


def approvals_router(service: ApprovalService) -> APIRouter:
    router = APIRouter(tags=["approvals"])

    @router.get("/v1/approvals", responses=problems(422, 503))
    @operation(VIEWER, OWN_TASKS, OPERATOR, title="List questions to people", tool="list_approvals")
    async def approvals(
        caller: CallerOf,
        task_id: Annotated[Identifier | None, Query(description="Only this task's.")] = None,
        all: Annotated[bool, Query(description="Those that were answered, too: the newest.")] = False,
    ) -> Approvals:
        """List what programs asked people and nobody has answered: their rollouts wait, and hold no process."""
        key = None if task_id is None else caller.key_of(task_id)
        return caller.show(Approvals(items=service.list(caller, key, open_only=not all)))

    @router.post("/v1/approvals/{approval_id}", responses=problems(404, 409, 422, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Answer a program's question", tool="answer_approval")
    async def decide(approval_id: TheQuestion, given: Annotated[GivenDecision, Body()], caller: CallerOf) -> Approval:
        """Answer a question: its rollout goes on with the answer. The first answer counts; a second one gets 409."""
        try:
            return caller.show(await service.decide(approval_id, given.decision, given.text, caller))
        except UnknownApproval as error:
            raise Problem(404, "No such question", str(error), "unknown-approval") from None
        except AnsweredBefore as error:
            raise Problem(409, "Answered before", str(error), "answered-before") from None
        except NotEditable as error:
            raise Problem(422, "Not to be edited", str(error), "not-editable") from None

    return router
