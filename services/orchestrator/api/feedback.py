"""POST /v1/feedback: what an application thinks of an answer it got. In the log, on disk, when it is answered."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Body

from ratchet.http.access.guard import CallerOf
from ratchet.http.operation import OPERATOR, OWN_TASKS, Effect, operation
from ratchet.http.problem import Problem, problems
from ratchet.http.server.idempotency import IdempotencyKey, id_from_key
from schemas.api.feedback import GivenFeedback
from schemas.messages.feedback import Feedback, LoggedFeedback
from services.orchestrator.feedback.feedback_service import (
    FeedbackService,
    IdUsedBefore,
    NoSuchAnswer,
    NotAnsweredYet,
    UnknownTask,
)

ROUTE = "POST /v1/feedback"


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
        key = id_from_key(caller, ROUTE, idempotency_key) if idempotency_key else f"feedback-{uuid.uuid4().hex}"
        feedback = Feedback(
            task_id=caller.key_of(given.task_id),
            score=given.value,
            metadata=given.metadata,
            sample=given.sample,
            correction=given.correction,
            reason=given.reason,
            feedback_id=given.feedback_id,
        )
        try:
            feedback_id = caller.key_of(given.feedback_id) if given.feedback_id else key
            return caller.show(await service.take(feedback, feedback_id, given_by=caller))
        except UnknownTask as error:
            raise Problem(404, "No such task", str(error), "unknown-task") from None
        except NoSuchAnswer as error:
            raise Problem(404, "No such answer", str(error), "unknown-answer") from None
        except NotAnsweredYet as error:
            raise Problem(409, "Not answered yet", str(error), "not-answered") from None
        except IdUsedBefore as error:
            raise Problem(409, "Id used before", str(error), "id-used") from None

    return router
