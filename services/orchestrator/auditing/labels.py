"""Labels by people: which answer is shown next, and what was said of it, into a log of its own.

People see neither the version nor a score. They are the measure of the scorer and of the auditor, and of nothing else:
no training and no experiment reads a label.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from itertools import combinations, islice

from ratchet.experiments.assignment import draw
from ratchet.http.work import Threads
from ratchet.logs.best_answer import NOT_THERE
from ratchet.logs.groups import group_by_task
from ratchet.logs.names import INTERACTIONS, LABELS, is_own
from ratchet.logs.reader import active_tail, decode_lines
from ratchet.service.errors import Reject
from schemas.api.feedback import AgentAgreement, Agreement, GivenLabel, ShownAnswer, ToLabel
from schemas.records.audit import AuditedTask, LoggedLabel, Shown
from schemas.records.interaction import Interaction
from services.orchestrator import metrics
from services.orchestrator.auditing.agreement import KEPT, AuditBook, calibration, pair_with_scores
from services.orchestrator.auditing.audits import AuditLog
from services.orchestrator.ledger.keyed_log import IdUsedBefore, KeyedLog
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.logged_task import logged_lines

TAIL = 2_000
"""The newest lines of the log, among which the next answer to label is looked for."""
MOST_LABELS = 2_000


class LabelLog(KeyedLog[LoggedLabel]):
    """`logs/labels.jsonl`, one line for each label given."""

    LOG = LABELS
    RECORD = LoggedLabel


class NoSuchAnswers(Reject):
    """A label of answers that this fleet does not have."""

    problem = 404, "No such answer", "unknown-answer"


@dataclass(eq=False)
class Calibrations:
    """The answers that people are shown, their labels, and how far judge, auditor and people agree."""

    ledger: Ledger
    label_log: LabelLog
    audit_log: AuditLog
    agents: InitVar[Sequence[str]]
    threads: Threads
    _: KW_ONLY
    clock: Callable[[], datetime]

    def __post_init__(self, agents: Sequence[str]) -> None:
        self._books = {agent: AuditBook() for agent in agents}

    def start(self) -> None:
        for line in self.audit_log.newest(KEPT):
            if book := self._books.get(line.agent_id):
                book.add(line)
        for agent_id, book in self._books.items():
            _show_gauges(agent_id, book)

    def add_verdict(self, line: AuditedTask) -> None:
        """The auditor's word on a task, or that there is none, is in the log."""
        if book := self._books.get(line.agent_id):
            book.add(line)
            _show_gauges(line.agent_id, book)

    def agreement(self) -> Agreement:
        labels = self.label_log.newest(MOST_LABELS)
        return Agreement(items=[self._of_agent(agent, book, labels) for agent, book in self._books.items()])

    async def next(self, given_by: str, *, pairs: bool, skip: int, agent_id: str | None) -> ToLabel | None:
        """An answer, or two, that this person has not labelled, audited ones first; in an order drawn by hash."""
        lines = await self.threads.run(self._newest)
        asked = [group for group in group_by_task(lines) if agent_id in (None, group[0].agent_id)]
        order = sorted(
            (self.audit_log.find(group[0].task_id) is None, draw("label", f"{group[0].task_id}/{shown}"), at, shown)
            for at, group in enumerate(asked)
            for shown in _to_show(group, pairs=pairs)
        )
        left = (
            (asked[at], shown)
            for _, _, at, shown in order
            if not self._has_label(asked[at][0].task_id, shown, given_by)
        )
        group, shown = next(islice(left, skip, None), (None, ()))
        return _to_label(group, shown) if group else None

    async def take(self, given: GivenLabel, label_id: str, given_by: str) -> LoggedLabel:
        """Take a label, on disk when this returns; the same id again changes nothing.

        Raises NoSuchAnswers, IdUsedBefore, DiskFull, JournalError.
        """
        return await asyncio.shield(self._take(given, label_id, given_by))

    async def _take(self, given: GivenLabel, label_id: str, given_by: str) -> LoggedLabel:
        known = self.ledger.find(given.task_id)
        lines = await self.threads.run(logged_lines, self.ledger.folder, known) if known and known.result else []
        samples = {line.sample: line for line in lines}
        if given.sample not in samples or given.other == given.sample or given.other not in (None, *samples):
            raise NoSuchAnswers(f"task {given.task_id!r} has {len(samples)} answers here: label one, or two of them")
        audited = self.audit_log.find(given.task_id)
        line = LoggedLabel(
            label_id=label_id,
            task_id=given.task_id,
            score=given.score,
            answer=_describe_answer(samples[given.sample], audited),
            other=None if given.other is None else _describe_answer(samples[given.other], audited),
            agent_id=lines[0].agent_id,
            adapter_version=lines[0].adapter_version,
            given_by=given_by,
            timestamp=self.clock(),
        )
        logged = await self.label_log.add(line)
        if _content(logged) != _content(line):
            raise IdUsedBefore(f"label {label_id!r} was given before with other content: give a new label_id")
        return logged

    def _newest(self) -> list[Interaction]:
        newest = decode_lines(active_tail(self.ledger.folder, INTERACTIONS, TAIL), Interaction)
        answers = (line for line in newest if line.sample is not None and line.response is not None)
        return [line for line in answers if not is_own(line.arm.experiment_id)]

    def _has_label(self, task_id: str, shown: tuple[int, ...], given_by: str) -> bool:
        return any(
            label.given_by == given_by
            and {label.answer.sample, *([label.other.sample] if label.other else [])} == set(shown)
            for label in self.label_log.of_task(task_id)
        )

    def _of_agent(self, agent_id: str, book: AuditBook, labels: Sequence[LoggedLabel]) -> AgentAgreement:
        theirs = [label for label in labels if label.agent_id == agent_id]
        judged, audited = (lambda shown: shown.judged), (lambda shown: shown.audited)
        return AgentAgreement(
            agent_id=agent_id,
            auditor=book.auditor,
            unscored=book.unscored,
            latest=book.latest,
            windows=book.windows,
            judge_by_answers=calibration(pair_with_scores(theirs, judged, pairs=False)),
            judge_by_pairs=calibration(pair_with_scores(theirs, judged, pairs=True)),
            auditor_by_answers=calibration(pair_with_scores(theirs, audited, pairs=False)),
            auditor_by_pairs=calibration(pair_with_scores(theirs, audited, pairs=True)),
        )


def _show_gauges(agent_id: str, book: AuditBook) -> None:
    if (latest := book.latest) and latest.judge is not None and latest.auditor is not None:
        metrics.audit_gap.labels(agent_id).set(latest.judge - latest.auditor)
    if (discordance := book.discordance) is not None:
        metrics.audit_discordance.labels(agent_id).set(discordance)


def _to_show(group: Sequence[Interaction], *, pairs: bool) -> list[tuple[int, ...]]:
    """Samples of a group to be shown; of a pair those whose texts differ."""
    there = [line for line in group if line.sample_status not in NOT_THERE]
    if not pairs:
        return [(line.sample or 0,) for line in there]
    return [(one.sample or 0, two.sample or 0) for one, two in combinations(there, 2) if one.response != two.response]


def _to_label(group: Sequence[Interaction], samples: tuple[int, ...]) -> ToLabel:
    first = group[0]
    order = sorted(samples, key=lambda sample: draw("order", f"{first.task_id}/{sample}"))
    texts = {line.sample: line.response or "" for line in group}
    return ToLabel(
        task_id=first.task_id,
        input=first.input,
        reference=first.reference,
        criteria=first.criteria,
        answers=[ShownAnswer(sample=sample, text=texts[sample]) for sample in order],
    )


def _describe_answer(line: Interaction, audited: AuditedTask | None) -> Shown:
    assert line.sample is not None
    scores = audited.scores if audited else ()
    return Shown(
        sample=line.sample,
        length=len(line.response or ""),
        judged=line.score,
        audited=scores[line.sample] if line.sample < len(scores) else None,
    )


def _content(line: LoggedLabel) -> tuple[str, int, int | None, float, str]:
    other = line.other.sample if line.other else None
    return line.task_id, line.answer.sample, other, line.score, line.given_by
