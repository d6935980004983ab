"""The opinions of applications and people: /v1/feedback on answers, /v1/labels and /v1/agreement, /v1/approvals.

/v1/feedback: how good an answer turned out to be; on disk when it is answered, and taught by the next training.
/v1/labels and /v1/agreement: an answer to label, blind; scorer, auditor and people beside each other.
/v1/approvals: what rollouts asked people; and an answer, after which the rollout goes on.
"""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, OWN_TASKS, VIEWER, Effect, operation
from ratchet.http.problem import problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key
from schemas.api.feedback import (
    Agreement,
    Approval,
    Approvals,
    GivenDecision,
    GivenFeedback,
    GivenLabel,
    NextToLabel,
    TakenLabel,
)
from schemas.messages.base import AgentId, Identifier
from schemas.messages.feedback import Feedback, LoggedFeedback
from services.orchestrator.approvals.approval_service import ApprovalService
from services.orchestrator.auditing.labels import Calibrations
from services.orchestrator.feedback.feedback_service import FeedbackService

GIVE_FEEDBACK = "POST /v1/feedback"


def feedback_router(service: FeedbackService) -> APIRouter:
    router = APIRouter(tags=["feedback"])

    @router.post("/v1/feedback", responses=problems(404, 409, 422, 503))
    @operation(OWN_TASKS, OPERATOR, effect=Effect.WORKS, title="Give feedback on an answer", tool="give_feedback")
    async def give(
        given: Annotated[GivenFeedback, Body()], caller: CallerOf, idempotency_key: IdempotencyKey = None
    ) -> LoggedFeedback:
        """Say how good an answer turned out to be. Training then learns from this score in place of the scorer's (of
        several, from the last one), and from the correction.

        The same `feedback_id` (or Idempotency-Key) again changes nothing.
        """
        key = id_from_key(caller, GIVE_FEEDBACK, idempotency_key) if idempotency_key else f"feedback-{uuid.uuid4().hex}"
        feedback = Feedback(
            task_id=caller.key_of(given.task_id),
            score=given.value,
            metadata=given.metadata,
            sample=given.sample,
            correction=given.correction,
            reason=given.reason,
            feedback_id=given.feedback_id,
        )
        feedback_id = caller.key_of(given.feedback_id) if given.feedback_id else key
        return caller.show(await service.take(feedback, feedback_id, given_by=caller))

    return router


LABEL = "POST /v1/labels"


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
        key = id_from_key(caller, LABEL, idempotency_key) if idempotency_key else f"label-{uuid.uuid4().hex}"
        taken = await calibrations.take(given, given.label_id or key, caller.name)
        return TakenLabel(label_id=taken.label_id)

    return router


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
        return caller.show(await service.decide(approval_id, given.decision, given.text, caller))

    return router
