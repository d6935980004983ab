"""Units of an experiment: what is assigned, what came of it, and the order in which they count.

A unit is a task, or the beginning of a session: its first few tasks that were admitted within a window of its first.
Its value is the mean over those tasks. A session is one unit, once, however often it comes back: later tasks get the
session's arm and count no more, since an arm that was not drawn afresh proves nothing afresh. What closes a session is
its own count, or the times in the log, so that a replay closes it at the same task.

Units count in the order they were assigned, each when all its tasks have ended, and were audited where they are to be.
Audits that never come are given up by a line in their log, so a replay comes to the same units. Tasks that never come
back are ended by their deadline, so the head of the line always moves. What the units prove is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from ratchet.experiments.assignment import Assignment, candidate_share


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A task that was admitted into the experiment, as its assignment was logged."""

    sequence: int
    unit_id: str
    """The session's id where the task has one, else the task's."""
    in_session: bool
    assignment: Assignment
    stratum: str
    at: float
    """Seconds since the epoch: when it was admitted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a task. One that failed, expired or could not be scored has no score and did not succeed."""

    succeeded: bool
    score: float | None = None
    """Mean over the group's scored samples, in [0, 1]."""
    scored: float = 1.0
    """Share of the group's samples that have a score; without any score it counts as 0."""
    length: float | None = None
    """Mean tokens of the group's samples."""
    latency_s: float | None = None
    refused: float | None = None
    """Share of its answers that are refusals."""
    scorer: str | None = None
    calls: float | None = None
    """Calls of the model, mean of the group's rollouts."""
    turns: float | None = None
    answered: bool = True
    """True if there is an answer that could be audited."""

    served: float | None = None
    """Score of the answer the user got: the best of the group, where the task does not choose otherwise."""
    is_choice: bool = False
    """True if that answer was chosen among several, so that its score may have chosen it."""

    def by(self, metric: Literal["single", "served"]) -> Outcome:
        """Return the outcome as an experiment on this metric counts it.

        A user is served one answer, so of the group's missing scores none is missing as long as there is one.
        """
        if metric == "single":
            return self
        return replace(self, score=self.served, scored=float(self.served is not None))

    @property
    def usable(self) -> float:
        return self.scored if self.score is not None else 0.0


@dataclass(frozen=True, slots=True)
class Audit:
    """The auditor's verdict on a task's answers, or of a unit's: `known` is their mean score, the unscored at 0."""

    known: float
    scored: float
    """Share of the samples with a score."""
    auditors: tuple[str, ...] = ()
    served: float | None = None
    """The score of the answer that the user got."""

    @property
    def score(self) -> float | None:
        return self.known / self.scored if self.scored else None


NOT_AUDITED = Audit(known=0.0, scored=0.0)
"""The audit of a task without an answer, or whose audit was given up."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A finished unit: means over its tasks, null where none of them has the figure.

    `scored`: the share of its samples that have a score; `known`: what these contribute to its mean score, the missing
    ones at 0, so that it is `known + (1 − scored) · c` were they all c.
    """

    sequence: int
    is_candidate: bool
    share: float
    """Probability with which it was given to the candidate."""
    stratum: str
    at: float
    score: float | None
    success: float
    scored: float
    known: float
    length: float | None
    latency_s: float | None
    refused: float | None
    scorers: tuple[str, ...]
    audit: Audit | None = None
    """The audit of a unit that was to have one."""
    calls: float | None = None
    turns: float | None = None
    served: Audit | None = None
    """The second verdict on what its users got, of a unit that was to have one."""


@dataclass(slots=True)
class OpenUnit:
    """A unit in the line: its tasks in order of assignment, with the outcomes that are in, and their audits."""

    first: Enrolment
    is_audited: bool
    by_auditor: bool = True
    """The auditor; else the scorer audits, once more, where the user's answer was chosen among several."""
    tasks: dict[int, Outcome | None] = field(default_factory=dict)
    audits: dict[int, Audit] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return None not in self.tasks.values() and next(self.awaited, None) is None

    @property
    def awaited(self) -> Iterator[int]:
        """Tasks that were answered, of which the audit is not in."""
        for sequence, outcome in self.tasks.items() if self.is_audited else ():
            if outcome is not None and self._is_to_audit(outcome) and sequence not in self.audits:
                yield sequence

    def _is_to_audit(self, outcome: Outcome) -> bool:
        return outcome.answered if self.by_auditor else outcome.is_choice

    def _audit(self) -> Audit:
        of_tasks = [self.audits.get(sequence, NOT_AUDITED) for sequence in self.tasks]
        return Audit(
            known=sum(audit.known for audit in of_tasks) / len(of_tasks),
            scored=sum(audit.scored for audit in of_tasks) / len(of_tasks),
            auditors=tuple(dict.fromkeys(name for audit in of_tasks for name in audit.auditors)),
        )

    def _mean_served(self) -> Audit:
        """Mean over its tasks. One without an answer served nobody, which is worth 0."""
        known, scored = 0.0, 0.0
        for sequence, outcome in self.tasks.items():
            assert outcome is not None, "a unit is finished once all its tasks are"
            score: float | None = 0.0
            if self._is_to_audit(outcome):
                score = self.audits.get(sequence, NOT_AUDITED).served
            elif outcome.answered:
                score = outcome.served
            known, scored = known + (score or 0.0), scored + (score is not None)
        return Audit(known / len(self.tasks), scored / len(self.tasks), self._audit().auditors)

    def finish(self) -> Unit:
        outcomes = [outcome for outcome in self.tasks.values() if outcome is not None]
        return Unit(
            sequence=self.first.sequence,
            is_candidate=self.first.assignment.is_candidate,
            share=candidate_share(self.first.assignment),
            stratum=self.first.stratum,
            at=self.first.at,
            score=mean([outcome.score for outcome in outcomes if outcome.score is not None]),
            success=sum(outcome.succeeded for outcome in outcomes) / len(outcomes),
            scored=sum(outcome.usable for outcome in outcomes) / len(outcomes),
            known=sum(outcome.usable * (outcome.score or 0.0) for outcome in outcomes) / len(outcomes),
            length=mean([outcome.length for outcome in outcomes if outcome.length is not None]),
            latency_s=mean([outcome.latency_s for outcome in outcomes if outcome.latency_s is not None]),
            refused=mean([outcome.refused for outcome in outcomes if outcome.refused is not None]),
            scorers=tuple(dict.fromkeys(outcome.scorer for outcome in outcomes if outcome.scorer is not None)),
            audit=self._audit() if self.is_audited and self.by_auditor else None,
            served=self._mean_served() if self.is_audited else None,
            calls=mean([outcome.calls for outcome in outcomes if outcome.calls is not None]),
            turns=mean([outcome.turns for outcome in outcomes if outcome.turns is not None]),
        )


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


class UnitLine:
    """The reorder buffer: outcomes in, in any order; finished units out, in the order of their assignment."""

    def __init__(
        self,
        *,
        session_tasks: int,
        session_window_s: float,
        is_audited: Callable[[str], bool] = lambda unit_id: False,
        by_auditor: bool = True,
    ) -> None:
        """`is_audited`: whether a unit counts only once its answers are audited. `by_auditor`: as of OpenUnit."""
        self._session_tasks = session_tasks
        self._window_s = session_window_s
        self._is_audited = is_audited
        self._by_auditor = by_auditor
        self._line: deque[OpenUnit] = deque()
        self._to_audit: dict[int, OpenUnit] = {}
        self._by_task: dict[int, OpenUnit] = {}
        self._open_sessions: dict[str, OpenUnit] = {}
        self._arms: dict[str, Assignment] = {}
        self._clock = float("-inf")
        self.enrolled = 0
        self.open_candidates = 0

    def arm_of(self, session_id: str) -> Assignment | None:
        """The arm a session already has."""
        return self._arms.get(session_id)

    def enrol(self, enrolment: Enrolment) -> None:
        """Add a task; call it in the order of the log of assignments."""
        self.advance(enrolment.at)
        if enrolment.in_session and enrolment.unit_id in self._arms:
            self._join(enrolment)
        else:
            self._append(enrolment)

    def observe(self, sequence: int, outcome: Outcome) -> None:
        """Take a task's outcome, once per task, the first time; what is not awaited is none of this experiment's
        business.
        """
        if unit := self._by_task.pop(sequence, None):
            unit.tasks[sequence] = outcome

    def audit(self, sequence: int, audit: Audit) -> None:
        """Take an audit, before or after the task's end, once, the first time; what is not awaited is none of its
        business.
        """
        if unit := self._to_audit.pop(sequence, None):
            unit.audits[sequence] = audit

    @property
    def awaited_audits(self) -> frozenset[int]:
        """Tasks that were answered, of which the audit is not in."""
        return frozenset(sequence for unit in self._line for sequence in unit.awaited)

    def advance(self, at: float) -> None:
        """It is `at`, and every task admitted before was enrolled: sessions whose window is over take no more tasks."""
        self._clock = max(self._clock, at)

    def finished_units(self) -> Iterator[Unit]:
        while self._line and self._line[0].ended and self._is_closed(self._line[0]):
            unit = self._line.popleft()
            self._open_sessions.pop(unit.first.unit_id, None)
            self.open_candidates -= unit.first.assignment.is_candidate
            for sequence in unit.tasks if unit.is_audited else ():
                self._to_audit.pop(sequence, None)
            yield unit.finish()

    def _append(self, enrolment: Enrolment) -> None:
        unit = OpenUnit(enrolment, self._is_audited(enrolment.unit_id), self._by_auditor)
        self._line.append(unit)
        self._take(unit, enrolment.sequence)
        if enrolment.in_session:
            self._arms[enrolment.unit_id] = enrolment.assignment
            self._open_sessions[enrolment.unit_id] = unit
        self.enrolled += 1
        self.open_candidates += enrolment.assignment.is_candidate

    def _join(self, enrolment: Enrolment) -> None:
        unit = self._open_sessions.get(enrolment.unit_id)
        if (
            unit is None
            or self._is_closed(unit)
            or enrolment.assignment.is_candidate != unit.first.assignment.is_candidate
        ):
            return
        self._take(unit, enrolment.sequence)

    def _take(self, unit: OpenUnit, sequence: int) -> None:
        unit.tasks[sequence] = None
        self._by_task[sequence] = unit
        if unit.is_audited:
            self._to_audit[sequence] = unit

    def _is_closed(self, unit: OpenUnit) -> bool:
        if not unit.first.in_session or len(unit.tasks) >= self._session_tasks:
            return True
        return self._clock >= unit.first.at + self._window_s
