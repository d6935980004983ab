"""Second verdicts on answers, into a log of their own: never into what the trainer reads.

The auditor gives them, or in an experiment of a fleet without one the scorer: asked once more, for the one answer that
the user got, since that was chosen by its first score. Which tasks get one is drawn by hash, whatever arm they had and
whatever the scorer said. In an experiment that asks for them a unit counts once its verdicts are in, so those that do
not come in time are given up by a line that says so.
A kill loses none of an experiment's: what is not in the log is asked again. Of other tasks, which are a sample for
people to look at, those in flight at a kill are left out.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Literal

from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import AUDITS, RESPONSES
from ratchet.experiments.assignment import draw
from ratchet.experiments.logged import answers_of, unit_of
from ratchet.experiments.replay import began_at
from ratchet.logs.best_answer import choose_answer, is_censored
from ratchet.logs.groups import group_by_task
from ratchet.logs.names import AUDITS as AUDIT_LOG
from ratchet.logs.names import INTERACTIONS, SECOND_VERDICTS, is_own
from ratchet.logs.reader import decode_lines, read
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.base import Metadata
from schemas.messages.response import Response, Sample, Usage
from schemas.messages.reward import Reward
from schemas.messages.work import Arm, Work
from schemas.records.audit import AuditedTask
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.ledger.keyed_log import KeyedLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.tasks.settlement import aligned_scores

AT_ONCE = 200
"""Audits asked for in one turn."""

Judge = Literal["auditor", "scorer"]

log = Log("audits")


class AuditLog(KeyedLog[AuditedTask]):
    """`logs/auditor_scores.jsonl`, one line for each task that was judged once more, or given up."""

    LOG = AUDIT_LOG
    RECORD = AuditedTask


@dataclass(frozen=True, slots=True)
class PendingAudit:
    """A task that is to be judged once more: what is sent, under an id of its own, and the line but for the scores."""

    response: Response
    line: AuditedTask
    due: float


@dataclass(eq=False)
class Audits:
    """Handles `audits.scores`. Give it every task closed, turns, and the Rewards for second verdicts of the scorer.

    `on_logged`: of each line once it is logged; `on_pair`: of each line about a pair.
    """

    bus: Bus
    ledger: Ledger
    audit_log: AuditLog
    arms: Mapping[str, Arms]
    settings: OrchestratorSettings
    _: KW_ONLY
    on_logged: Callable[[AuditedTask], None]
    clock: Callable[[], datetime]
    seconds: Callable[[], float]
    on_pair: Callable[[AuditedTask], None] = lambda _: None

    def __post_init__(self) -> None:
        self._to_send: dict[str, PendingAudit] = {}
        self._sent: dict[str, PendingAudit] = {}

    async def start(self) -> None:
        """Ask again for the verdicts that experiments wait for, once those were taken up. Raises JournalError."""
        for arms in self.arms.values():
            plans = {experiment.plan.experiment_id: experiment.plan for _, experiment in arms.trials}
            awaited = {
                (experiment.plan.experiment_id, sequence)
                for _, experiment in arms.trials
                for sequence in arms.awaited_audits(experiment)
            }
            for lines in await asyncio.to_thread(self._read_lines, awaited):
                if known := self.ledger.find(lines[0].task_id):
                    has_auditor = plans[str(lines[0].arm.experiment_id)].audit is not None
                    self._ask(await self.ledger.work_of(known), lines, "auditor" if has_auditor else "scorer")

    def consider(self, work: Work, lines: Sequence[Interaction]) -> None:
        """A task has its lines in the log, and its experiment knows."""
        if lines[0].sample is not None and not is_own(work.arm.experiment_id) and (by := self._judge_of(work, lines)):
            self._ask(work, lines, by)

    def ask_pair(self, work: Work, small: Interaction, big: Interaction) -> None:
        """Have the two answers to a task judged together, by who did not route it: the auditor, else the scorer again.

        `work`: the small model's. One line is logged under the task of the big model's answer, or it is there already.
        """
        by: Judge = "auditor" if self.settings.auditor else "scorer"
        asked_as = big.task_id if by == "auditor" else f"{SECOND_VERDICTS}{secrets.token_hex(16)}"
        now = self.clock()
        line = AuditedTask(
            task_id=big.task_id,
            agent_id=small.agent_id,
            adapter_version=small.adapter_version,
            arm=work.arm,
            by=by,
            is_pair=True,
            judged=(small.score, big.score),
            lengths=tuple(len(one.response or "") for one in (small, big)),
            timestamp=now,
        )
        until = now + timedelta(seconds=self.settings.audit_timeout_s)
        response = _response(asked_as, work, (small, big), until)
        self._to_send[asked_as] = PendingAudit(response, line, self.seconds() + self.settings.audit_timeout_s)

    async def turn(self) -> None:
        """Send what is to be audited, give up what is overdue. Raises BusError, StorageUnavailable."""
        some = [asked for asked in self._to_send.values() if self._is_there(asked.line.by)][:AT_ONCE]
        await asyncio.gather(*(self._send(asked) for asked in some))
        overdue = [asked for asked in (*self._sent.values(), *self._to_send.values()) if asked.due <= self.seconds()]
        for asked in overdue:
            there = self._is_there(asked.line.by)
            why = f"given up after {self.settings.audit_timeout_s:.0f} s" if there else "there is no auditor"
            await self._settle(asked, asked.line.model_copy(update={"reason": why, "timestamp": self.clock()}))

    async def handle(self, delivery: Delivery) -> None:
        await self.take(decode_delivery(Reward, delivery))

    async def take(self, reward: Reward) -> None:
        """The second verdict that was asked for under the Reward's task id; one that nobody waits for is dropped."""
        task_in_hand.set(reward.task_id)
        asked = self._sent.get(reward.task_id) or self._to_send.get(reward.task_id)
        if asked is None:
            log.info("late", "a second verdict that nobody waits for: given up, or asked for before a restart")
            return
        given = aligned_scores(reward, len(asked.response.samples))
        scores = tuple(one.score for one in given)
        if asked.line.by == "scorer" and not asked.line.is_pair:
            scores = tuple(scores[0] if at == asked.line.served else None for at in range(len(asked.line.judged)))
        verdict = {
            "auditor": reward.scorer,
            "scores": scores,
            "reason": next((one.reason for one in given if one.score is None), None),
            "timestamp": self.clock(),
        }
        await self._settle(asked, asked.line.model_copy(update=verdict))

    def _judge_of(self, work: Work, lines: Sequence[Interaction]) -> Judge | None:
        """Return who is to judge the task's answers once more, if anybody."""
        for running, experiment in self.arms[work.agent_id].judged_here:
            if running.experiment_id == work.arm.experiment_id:
                is_drawn = experiment.audits(unit_of(work)[0])
                if experiment.plan.audit is not None:
                    return "auditor" if is_drawn else None
                if is_drawn and len(answers_of(lines)) > 1:
                    return "scorer"
        is_drawn = not is_censored(work.select) and draw("audited", work.task_id) < self.settings.audit_share
        return "auditor" if self.settings.auditor and is_drawn else None

    def _is_there(self, judge: Judge) -> bool:
        return judge == "scorer" or bool(self.settings.auditor)

    def _ask(self, work: Work, lines: Sequence[Interaction], by: Judge) -> None:
        wait_s = self.settings.audit_timeout_s if self._is_there(by) else 0.0
        line = _line(work, lines, by, self.clock())
        shown, asked_as = lines, work.task_id
        if by == "scorer":
            assert line.served is not None, "it has an answer"
            shown, asked_as = [lines[line.served]], f"{SECOND_VERDICTS}{secrets.token_hex(16)}"
        self._to_send[asked_as] = PendingAudit(
            response=_response(asked_as, work, shown, self.clock() + timedelta(seconds=wait_s)),
            line=line,
            due=self.seconds() + wait_s,
        )

    async def _send(self, asked: PendingAudit) -> None:
        asked_as = asked.response.task_id
        queue = AUDITS if asked.line.by == "auditor" else RESPONSES
        await self.bus.publish(
            queue, asked.response.encode(), type=Response.TYPE, message_id=derived_id(asked_as, "audit")
        )
        if self._to_send.pop(asked_as, None) is not None:
            self._sent[asked_as] = asked

    async def _settle(self, asked: PendingAudit, line: AuditedTask) -> None:
        """Into the log, then into the experiment; once, whoever is first."""
        logged = await self.audit_log.add(line)
        asked_as = asked.response.task_id
        if (self._to_send.pop(asked_as, None) or self._sent.pop(asked_as, None)) is None:
            return
        is_scored = any(score is not None for score in logged.scores)
        metrics.audits.labels(logged.agent_id, "scored" if is_scored else "unscored").inc()
        if logged.is_pair:
            self.on_pair(logged)
            return
        self.arms[logged.agent_id].note_audited(logged)
        self.on_logged(logged)

    def _read_lines(self, awaited: Collection[tuple[str, int]]) -> list[list[Interaction]]:
        """The lines of these tasks. Blocks."""
        if not awaited:
            return []
        begin = min(
            0 if arms.follows else began_at(running, INTERACTIONS)
            for arms in self.arms.values()
            for running, _ in arms.trials
        )
        lines = read(self.ledger.folder, INTERACTIONS, begin, on_bad=lambda bad: None)
        logged = decode_lines((line.data for line in lines), Interaction)
        return list(group_by_task(one for one in logged if (str(one.arm.experiment_id), one.arm.sequence) in awaited))


def _response(asked_as: str, work: Work, lines: Sequence[Interaction], deadline: datetime) -> Response:
    """The answers that are judged once more, and neither whose they are nor what anybody thought of them."""
    as_they_are = work.sampling.model_copy(update={"stop": None})
    blind = {
        "task_id": asked_as,
        "deadline": deadline,
        "reply_to": None,
        "correlation_id": None,
        "select": None,
        "arm": Arm(sequence=work.arm.sequence),
    }
    samples = tuple(
        Sample(text=line.response or "", finish_reason=line.finish_reason, artifact=line.artifact, usage=_usage(line))
        for line in lines
    )
    return Response(
        task_id=asked_as,
        response=samples[0].text,
        agent_id=lines[0].agent_id,
        metadata=Metadata(timestamp=lines[0].timestamp),
        samples=samples,
        work=work.model_copy(update=blind | {"sampling": as_they_are}),
    )


def _usage(line: Interaction) -> Usage | None:
    """The cost of the answer, which may be a part of its score."""
    if line.usage is not None or line.sampled_tokens is None:
        return line.usage
    return Usage(sampled_tokens=line.sampled_tokens)


def _line(work: Work, lines: Sequence[Interaction], by: Judge, at: datetime) -> AuditedTask:
    served = choose_answer(answers_of(lines))
    return AuditedTask(
        task_id=work.task_id,
        agent_id=work.agent_id,
        adapter_version=lines[0].adapter_version,
        arm=work.arm,
        by=by,
        served=next(at for at, line in enumerate(lines) if line is served),
        judged=tuple(line.score for line in lines),
        lengths=tuple(len(line.response or "") for line in lines),
        timestamp=at,
    )
