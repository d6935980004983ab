"""Answers to the auditor, its scores into a log of their own: never into what the trainer reads.

Which tasks are audited is drawn by hash, whatever arm they had and whatever the scorer said. In an experiment that asks
for audits a unit counts once its audits are in, so those that do not come in time are given up by a line that says so.
A kill loses none of an experiment's: what is not in the log is asked again. Of other tasks, which are a sample for
people to look at, those in flight at a kill are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ratchet.bus.message_id import derived_id
from ratchet.bus.protocol import Bus, Delivery, opened
from ratchet.bus.topology import AUDITS
from ratchet.experiments.assignment import draw
from ratchet.experiments.logged import unit_of
from ratchet.experiments.replay import began_at
from ratchet.logs.best_answer import is_censored
from ratchet.logs.groups import grouped
from ratchet.logs.names import AUDIT_INDEX, INTERACTIONS, is_own
from ratchet.logs.names import AUDITS as AUDIT_LOG
from ratchet.logs.reader import read
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.base import DecodeError, Metadata
from schemas.messages.response import Response, Sample
from schemas.messages.reward import Reward
from schemas.messages.work import Arm, Work
from schemas.records.audit import AuditedTask
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.ledger.keyed_log import KeyedLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.promotion.arms import Arms

AT_ONCE = 200
"""Audits asked for in one turn."""

log = Log("audits")


class AuditLog(KeyedLog[AuditedTask]):
    """`logs/auditor_scores.jsonl`, one line for each task that was audited, or given up."""

    LOG = AUDIT_LOG
    INDEX = AUDIT_INDEX
    RECORD = AuditedTask


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    enabled: bool
    """Whether this fleet has an auditor."""
    share: float
    """Of the tasks that are in no experiment that asks for more."""
    timeout_s: float
    """After which an audit is given up."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A task whose answers the auditor is to score; its line, but for what the auditor says."""

    response: Response
    line: AuditedTask
    due: float


class Audits:
    """Handles `audits.scores`. Give it every task closed, and turns."""

    def __init__(
        self,
        bus: Bus,
        ledger: Ledger,
        audit_log: AuditLog,
        arms: Mapping[str, Arms],
        policy: AuditPolicy,
        *,
        logs_dir: Path,
        heard: Callable[[AuditedTask], None],
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
    ) -> None:
        """`heard`: of each line once it is logged."""
        self._bus = bus
        self._ledger = ledger
        self._log = audit_log
        self._arms = arms
        self._policy = policy
        self._logs_dir = logs_dir
        self._heard = heard
        self._clock = clock
        self._seconds = seconds
        self._to_send: dict[str, Asked] = {}
        self._sent: dict[str, Asked] = {}

    async def start(self) -> None:
        """After the experiments were taken up: ask again for what they wait for. Raises JournalError."""
        for arms in self._arms.values():
            awaited = {
                (experiment.plan.experiment_id, sequence)
                for _, experiment in arms.trials
                for sequence in experiment.awaited_audits
            }
            for lines in await asyncio.to_thread(self._logged, awaited):
                if known := self._ledger.find(lines[0].task_id):
                    self._ask(await self._ledger.work_of(known), lines)

    def closed(self, work: Work, lines: Sequence[Interaction]) -> None:
        """A task has its lines in the log, and its experiment knows."""
        if lines[0].sample is not None and not is_own(work.arm.experiment_id) and self._wanted(work):
            self._ask(work, lines)

    async def turn(self) -> None:
        """Send what is to be audited, give up what is overdue. Raises BusError, StorageUnavailable."""
        if self._policy.enabled:
            some = list(self._to_send.items())[:AT_ONCE]
            await asyncio.gather(*(self._send(task_id, asked) for task_id, asked in some))
        overdue = [asked for asked in (*self._sent.values(), *self._to_send.values()) if asked.due <= self._seconds()]
        for asked in overdue:
            why = f"given up after {self._policy.timeout_s:.0f} s" if self._policy.enabled else "there is no auditor"
            await self._settle(asked.line.model_copy(update={"reason": why, "timestamp": self._clock()}))

    async def handle(self, delivery: Delivery) -> None:
        reward = opened(Reward, delivery)
        task_in_hand.set(reward.task_id)
        asked = self._sent.get(reward.task_id) or self._to_send.get(reward.task_id)
        if asked is None:
            log.info("late", "scores of the auditor that nobody waits for: given up, or asked for before a restart")
            return
        told = {
            "auditor": reward.scorer,
            "scores": tuple(score.score for score in reward.scores[: len(asked.line.judged)]),
            "reason": next((score.reason for score in reward.scores if score.score is None), None),
            "timestamp": self._clock(),
        }
        await self._settle(asked.line.model_copy(update=told))

    def _wanted(self, work: Work) -> bool:
        for running, experiment in self._arms[work.agent_id].trials:
            if running.experiment_id == work.arm.experiment_id and experiment.plan.audit is not None:
                return experiment.audits(unit_of(work)[0])
        return (
            self._policy.enabled and not is_censored(work.select) and draw("audited", work.task_id) < self._policy.share
        )

    def _ask(self, work: Work, lines: Sequence[Interaction]) -> None:
        wait_s = self._policy.timeout_s if self._policy.enabled else 0.0
        self._to_send[work.task_id] = Asked(
            response=_response(work, lines, self._clock() + timedelta(seconds=wait_s)),
            line=_line(work, lines, self._clock()),
            due=self._seconds() + wait_s,
        )

    async def _send(self, task_id: str, asked: Asked) -> None:
        await self._bus.publish(
            AUDITS, asked.response.encode(), type=Response.TYPE, message_id=derived_id(task_id, "audit")
        )
        if self._to_send.pop(task_id, None) is not None:
            self._sent[task_id] = asked

    async def _settle(self, line: AuditedTask) -> None:
        """Into the log, then into the experiment; once, whoever is first."""
        logged = await self._log.add(line)
        asked = self._to_send.pop(line.task_id, None) or self._sent.pop(line.task_id, None)
        if asked is None:
            return
        metrics.audits.labels(logged.agent_id, "scored" if any_scored(logged) else "unscored").inc()
        self._arms[logged.agent_id].audited(logged)
        self._heard(logged)

    def _logged(self, awaited: Collection[tuple[str, int]]) -> list[list[Interaction]]:
        """The lines of these tasks. Blocks."""
        if not awaited:
            return []
        begin = min(began_at(running, INTERACTIONS) for arms in self._arms.values() for running, _ in arms.trials)
        return list(grouped(self._of(awaited, begin)))

    def _of(self, awaited: Collection[tuple[str, int]], begin: int) -> Iterable[Interaction]:
        for line in read(self._logs_dir, INTERACTIONS, begin, on_bad=lambda bad: None):
            try:
                interaction = Interaction.decode(line.data)
            except DecodeError:
                continue
            if (str(interaction.arm.experiment_id), interaction.arm.sequence) in awaited:
                yield interaction


def any_scored(line: AuditedTask) -> bool:
    return any(score is not None for score in line.scores)


def _response(work: Work, lines: Sequence[Interaction], deadline: datetime) -> Response:
    """What the auditor is sent: the answers, and neither whose they are nor what anybody thought of them."""
    as_they_are = work.sampling.model_copy(update={"stop": None})
    blind = {"deadline": deadline, "reply_to": None, "correlation_id": None, "arm": Arm(sequence=work.arm.sequence)}
    samples = tuple(
        Sample(text=line.response or "", finish_reason=line.finish_reason, artifact=line.artifact) for line in lines
    )
    return Response(
        task_id=work.task_id,
        response=samples[0].text,
        agent_id=lines[0].agent_id,
        metadata=Metadata(timestamp=lines[0].timestamp),
        samples=samples,
        work=work.model_copy(update=blind | {"sampling": as_they_are}),
    )


def _line(work: Work, lines: Sequence[Interaction], at: datetime) -> AuditedTask:
    return AuditedTask(
        task_id=work.task_id,
        agent_id=work.agent_id,
        adapter_version=lines[0].adapter_version,
        arm=work.arm,
        judged=tuple(line.score for line in lines),
        lengths=tuple(len(line.response or "") for line in lines),
        timestamp=at,
    )
