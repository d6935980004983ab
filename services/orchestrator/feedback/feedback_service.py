"""Feedback in: which answer it is about, and whether that can be; then into the log, before it is acked.

It changes no Result and no experiment: what it is for is the next training (record 0018).
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from ratchet.bus.protocol import Delivery, decode_delivery
from ratchet.http.access.roles import Caller
from ratchet.logs.names import FEEDBACK
from ratchet.logs.tenants import key_of, tenant_of
from ratchet.service.errors import Reject, Retry
from ratchet.service.telemetry import task_in_hand
from schemas.messages.feedback import Feedback, LoggedFeedback
from schemas.messages.result import Result
from services.orchestrator import metrics
from services.orchestrator.clocks import now
from services.orchestrator.ledger.index import Entry
from services.orchestrator.ledger.keyed_log import IdUsedBefore, KeyedLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.result_sender import Senders


class FeedbackLog(KeyedLog[LoggedFeedback]):
    """`logs/feedback.jsonl`, one line for each feedback given."""

    LOG = FEEDBACK
    RECORD = LoggedFeedback


class UnknownTask(Reject):
    """Feedback to a task that this fleet never admitted."""

    problem = 404, "No such task", "unknown-task"


class NotAnsweredYet(Retry):
    """Feedback to a task that is still being worked on."""

    problem = 409, "Not answered yet", "not-answered"


class NoSuchAnswer(Reject):
    """Feedback to a sample that the task does not have."""

    problem = 404, "No such answer", "unknown-answer"


@dataclass(eq=False)
class FeedbackService:
    """Handles the queue `feedback`, and what callers of the API give."""

    ledger: Ledger
    log: FeedbackLog
    senders: Senders

    async def handle(self, delivery: Delivery) -> None:
        feedback = decode_delivery(Feedback, delivery)
        tenant = self.senders.tenant_of(delivery)
        key = key_of(tenant, feedback.task_id)
        task_in_hand.set(key)
        if tenant_of(key) != tenant:
            raise UnknownTask(f"no task {feedback.task_id!r} of this sender's tenant was admitted by this fleet")
        feedback_id = key_of(tenant, feedback.feedback_id) if feedback.feedback_id else _id_of(delivery)
        await self.take(feedback.model_copy(update={"task_id": key}), feedback_id)

    async def take(self, feedback: Feedback, feedback_id: str, *, given_by: Caller | None = None) -> LoggedFeedback:
        """Take feedback, on disk when this returns; the same id again changes nothing.

        A caller that is cancelled leaves it given or not, never half: its id would else be free for a second line.
        Raises UnknownTask, NotAnsweredYet, NoSuchAnswer, IdUsedBefore, DiskFull, JournalError.
        """
        return await asyncio.shield(self._take(feedback, feedback_id, given_by))

    async def _take(self, feedback: Feedback, feedback_id: str, given_by: Caller | None) -> LoggedFeedback:
        line = self._line(feedback, feedback_id, given_by)
        logged = await self.log.add(line)
        if logged is line:
            metrics.feedback_score.labels(line.agent_id, line.adapter_version).observe(line.score)
        elif _content(logged) != _content(line):
            raise IdUsedBefore(f"feedback {feedback_id!r} was given before with other content: give a new feedback_id")
        return logged

    def of_task(self, task_id: str) -> list[LoggedFeedback]:
        """The feedback on a task, in the order it came."""
        return self.log.of_task(task_id)

    def _line(self, feedback: Feedback, feedback_id: str, given_by: Caller | None) -> LoggedFeedback:
        result, sample = self._answer(feedback, given_by)
        assert result.agent_id is not None and result.adapter_version is not None  # settled from logged lines
        return LoggedFeedback(
            feedback_id=feedback_id,
            task_id=feedback.task_id,
            sample=sample,
            score=feedback.score,
            correction=feedback.correction,
            reason=feedback.reason,
            agent_id=result.agent_id,
            adapter_version=result.adapter_version,
            given_by=given_by.name if given_by else None,
            timestamp=now(),
            metadata=feedback.metadata,
        )

    def _answer(self, feedback: Feedback, given_by: Caller | None) -> tuple[Result, int]:
        """The Result of its task, and the number of the sample it is about."""
        known = self.ledger.find(feedback.task_id)
        if known is None or (given_by is not None and not given_by.may_see(known.task_id, known.owner)):
            raise UnknownTask(
                f"no task {feedback.task_id!r} was admitted by this fleet: feedback names the task_id of a Result"
            )
        if known.result is None:
            raise NotAnsweredYet(f"task {feedback.task_id!r} has no answer yet: give feedback once you have its Result")
        result = Result.decode(known.result)
        return result, _sample(feedback, known, result)


def _sample(feedback: Feedback, known: Entry, result: Result) -> int:
    sample = result.sample if feedback.sample is None else feedback.sample
    if sample is None and result.status == "ok":
        return known.logged  # behind the group: the answer of the big model of its cascade
    if sample is None:
        raise NoSuchAnswer(f"task {feedback.task_id!r} ended without an answer ({result.status}): nothing to judge")
    if sample >= known.logged:
        raise NoSuchAnswer(f"task {feedback.task_id!r} has {known.logged} samples, 0 first: there is no {sample}")
    return sample


def _content(line: LoggedFeedback) -> tuple[str, int, float, str | None, str | None]:
    return line.task_id, line.sample, line.score, line.reason, line.correction


def _id_of(delivery: Delivery) -> str:
    """The same for the same message delivered twice, and for no other."""
    return "message-" + hashlib.sha256(f"{delivery.message_id}\n".encode() + delivery.body).hexdigest()
