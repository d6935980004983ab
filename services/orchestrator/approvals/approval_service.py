"""Questions of rollouts to people: taken from runners, answered over the API or by their time, and sent back as a Work.

A question is in the log before the runner's message is acked, an answer before its caller is told. The rollout goes on
once its Work, with all answers, is confirmed by the broker; after a restart those that were not sent are sent.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import cancellations_topic
from ratchet.http.access.roles import Caller
from ratchet.logs.names import APPROVALS
from ratchet.rollouts.kept_steps import MOST_QUESTIONS
from ratchet.service import failpoint
from ratchet.service.deadline_time import DeadlineTime, time_within
from ratchet.service.errors import BusError, Reject
from ratchet.service.telemetry import Log, task_in_hand
from schemas.api.feedback import Approval
from schemas.messages.approval_request import ApprovalRequest
from schemas.messages.task import TaskCancelled
from schemas.messages.work import Decision, GivenApproval, Work
from schemas.records.approval import ApprovalState, LoggedApproval
from services.orchestrator import metrics
from services.orchestrator.clocks import now
from services.orchestrator.ledger.keyed_log import KeyedLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.observation.event_hub import EventHub
from services.orchestrator.tasks.intake import queue_of

log = Log("approvals")

NEWEST = 1_000
OPEN = (
    "AS asked WHERE key NOT LIKE '%/decided' AND key NOT LIKE '%/resumed' AND NOT EXISTS "
    "(SELECT 1 FROM lines WHERE key = asked.key || '/decided') ORDER BY position"
)
UNSENT = (
    "AS decided WHERE key LIKE '%/decided' AND NOT EXISTS "
    "(SELECT 1 FROM lines WHERE key = replace(decided.key, '/decided', '/resumed')) ORDER BY position"
)


class ApprovalLog(KeyedLog[LoggedApproval]):
    """`logs/approvals.jsonl`: a line for each question, each answer, and each rollout that goes on."""

    LOG = APPROVALS
    RECORD = LoggedApproval

    def open_questions(self) -> list[LoggedApproval]:
        return self._lines(OPEN)

    def unsent(self) -> list[LoggedApproval]:
        """Return the answers whose rollouts have not gone on."""
        return self._lines(UNSENT)


class UnknownApproval(Reject):
    """There is no such question, or the caller may not see it."""

    problem = 404, "No such question", "unknown-approval"


class AnsweredBefore(Reject):
    """Somebody answered before, nobody did in time, or the task has ended."""

    problem = 409, "Answered before", "answered-before"


class NotEditable(Reject):
    """An edit of a result has the text that it should have been."""

    problem = 422, "Not to be edited", "not-editable"


@dataclass(eq=False)
class ApprovalService:
    """Handles the queue `approvals`, and what callers of the API answer. `turn` it about once a second."""

    bus: Bus
    ledger: Ledger
    log: ApprovalLog
    hub: EventHub

    def __post_init__(self) -> None:
        self._time = DeadlineTime()
        self._open: dict[str, LoggedApproval] = {}
        self._unsent: dict[str, LoggedApproval] = {}
        """Answers, by approval, whose rollouts are to go on."""

    def start(self) -> None:
        """Take up what is open, and what was answered and not sent."""
        self._open = {line.approval_id: line for line in self.log.open_questions() if self._work(line) is not None}
        self._unsent = {line.approval_id: line for line in self.log.unsent() if self._work(line) is not None}

    async def handle(self, delivery: Delivery) -> None:
        """Log a runner's question. One that comes again and was answered has its rollout go on again."""
        request = decode_delivery(ApprovalRequest, delivery)
        task_in_hand.set(request.task_id)
        if (known := self.log.find(request.approval_id)) is not None:
            decided = self.log.find(f"{known.approval_id}/decided")
            if known.task_id == request.task_id:
                if self._work(known) is None:
                    await self._tell_ended(request)
                elif decided is not None:
                    await self._send(decided)
            return
        entry = self.ledger.find(request.task_id)
        if entry is None or entry.work is None or entry.result is not None:
            log.info("late", "a question of a task that has ended")
            await self._tell_ended(request)
            return
        work = Work.decode(entry.work)
        if work.agent_id != request.agent_id or request.sample >= work.sampling.n:
            raise Reject("the question is of another agent, or of a rollout that its task does not have")
        asked = [line for line in self.log.of_task(request.task_id) if line.sample == request.sample]
        if sum(line.state == "asked" for line in asked) >= MOST_QUESTIONS:
            raise Reject(f"this rollout has asked {MOST_QUESTIONS} questions: it may ask no more")
        left_s = self._time.left_s(work.deadline, work.admitted_at)
        until = work.deadline - timedelta(seconds=left_s - time_within(left_s, None))
        line = self._line(request, "asked").model_copy(update={"request": request, "until": until})
        self._open[line.approval_id] = await self.log.add(line)
        failpoint.reach("approval-logged")
        self._publish(line)

    async def _tell_ended(self, request: ApprovalRequest) -> None:
        """Tell runners that nobody waits for this rollout, which a Work that came again began. Raises BusError."""
        message = TaskCancelled(task_id=request.task_id, agent_id=request.agent_id, metadata=request.metadata)
        topic, message_id = cancellations_topic(request.agent_id), derived_id(request.approval_id, "ended")
        await self.bus.broadcast(topic, message.encode(), type=TaskCancelled.TYPE, message_id=message_id)

    async def decide(self, approval_id: str, decision: Decision, text: str, caller: Caller) -> Approval:
        """Log a person's answer; the rollout then goes on. The same answer of the same person again changes nothing.

        A caller that is cancelled leaves it given or not, never half. Raises UnknownApproval, AnsweredBefore,
        NotEditable, DiskFull, JournalError.
        """
        asked = self.log.find(approval_id)
        if asked is None or asked.request is None or not self._may_see(asked, caller):
            raise UnknownApproval(f"no question {approval_id!r} was asked here: GET /v1/approvals lists them")
        if decision == "edit" and asked.request.ends and not text.strip():
            raise NotEditable("an edit of a result has the text that it should have been")
        given = {"decision": decision, "text": text, "given_by": caller.name}
        return await asyncio.shield(self._decide(asked, given))

    async def _decide(self, asked: LoggedApproval, given: dict[str, str]) -> Approval:
        before = self.log.find(f"{asked.approval_id}/decided")
        if before is None and self._work(asked) is None:
            raise AnsweredBefore("its task has ended: nothing waits for this answer")
        line = self._line(asked, "decided").model_copy(update=given)
        logged = before or await self.log.add(line)
        if any(getattr(logged, name) != value for name, value in given.items()):
            what = "nobody answered in time" if logged.decision == "expired" else f"{logged.given_by} answered before"
            raise AnsweredBefore(f"{what}: it is {logged.decision}")
        if logged is line:
            self._open.pop(asked.approval_id, None)
            metrics.approvals.labels(given["decision"]).inc()
            failpoint.reach("approval-logged")
            self._publish(asked, logged)
            try:
                await self._send(logged)
            except Exception as error:
                self._unsent[asked.approval_id] = logged  # only now: the next turn sends it, and none before
                if not isinstance(error, BusError):
                    raise
        return self._view(asked, logged)

    def list(self, caller: Caller, task_id: str | None, *, open_only: bool) -> list[Approval]:
        """Return the questions that are open, or all of the newest; those that the caller may see."""
        if open_only:
            lines = list(self._open.values())
        else:
            newest = self.log.of_task(task_id) if task_id is not None else self.log.newest(NEWEST)
            lines = [line for line in newest if line.state == "asked"]
        seen = [one for one in lines if task_id in (None, one.task_id) and self._may_see(one, caller)]
        return [self._view(line, self.log.find(f"{line.approval_id}/decided")) for line in seen]

    async def turn(self) -> None:
        """End what nobody answered in time, forget what has ended, and send what was not sent. Raises BusError."""
        for line in list(self._open.values()):
            if (work := self._work(line)) is None:
                del self._open[line.approval_id]
            elif line.until is not None and self._time.left_s(line.until, work.admitted_at) <= 0:
                with suppress(AnsweredBefore):
                    await self._decide(line, {"decision": "expired", "text": ""})
        metrics.open_approvals.set(len(self._open))
        for decided in list(self._unsent.values()):
            await self._send(decided)

    async def _send(self, decided: LoggedApproval) -> None:
        """Send the Work with all answers, unless another question of the rollout is open. Raises BusError."""
        work, lines = self._work(decided), self.log.of_task(decided.task_id)
        if work is not None:
            if any(one.task_id == decided.task_id and one.sample == decided.sample for one in self._open.values()):
                return
            given = tuple(
                GivenApproval(approval_id=one.approval_id, sample=one.sample, decision=one.decision, text=one.text)
                for one in lines
                if one.decision is not None
            )
            body = work.model_copy(update={"approvals": given}).encode()
            message_id = derived_id(decided.approval_id, "work")
            await self.bus.publish(queue_of(work), body, type=Work.TYPE, message_id=message_id)
            await self.log.add(self._line(decided, "resumed"))
        self._unsent.pop(decided.approval_id, None)

    def _work(self, line: LoggedApproval) -> Work | None:
        """Return the Work of a task that is open."""
        known = self.ledger.find(line.task_id)
        return Work.decode(known.work) if known and known.work is not None and known.result is None else None

    def _may_see(self, line: LoggedApproval, caller: Caller) -> bool:
        known = self.ledger.find(line.task_id)
        return known is not None and caller.may_see(line.task_id, known.owner)

    def _line(self, about: ApprovalRequest | LoggedApproval, state: ApprovalState) -> LoggedApproval:
        return LoggedApproval(
            approval_id=about.approval_id,
            task_id=about.task_id,
            agent_id=about.agent_id,
            sample=about.sample,
            state=state,
            timestamp=now(),
        )

    def _view(self, asked: LoggedApproval, decided: LoggedApproval | None) -> Approval:
        request = asked.request
        assert request is not None and asked.until is not None
        return Approval(
            **request.model_dump(exclude={"metadata"}),
            asked_at=asked.timestamp,
            until=asked.until,
            decision=decided and decided.decision,
            text=decided.text if decided else "",
            given_by=decided and decided.given_by,
            decided_at=decided and decided.timestamp,
        )

    def _publish(self, asked: LoggedApproval, decided: LoggedApproval | None = None) -> None:
        known = self.ledger.find(asked.task_id)
        moved = {
            "approval_id": asked.approval_id,
            "task_id": asked.task_id,
            "agent_id": asked.agent_id,
            "sample": asked.sample,
            "question": asked.request.question if asked.request else "",
            "decision": decided and decided.decision,
            "given_by": decided and decided.given_by,
        }
        self.hub.publish_task("approval", moved, known.owner if known else None)
