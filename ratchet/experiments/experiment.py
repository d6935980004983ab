"""One experiment, a candidate against a primary: units in, a verdict out. Pure: no clock, no bus, no files.

The caller asks `arm_for` at admission, logs the assignment, reports it with `enrol`, and reports every task's end
with `observe`. Fed from the two logs instead, it comes to the same state bit for bit: all that counts is computed per
finished unit, in the order of assignment (unit.py), from logged values alone. The verdict is latched: what
comes later changes nothing.

Left to the caller: cool-down, the freeze, one experiment at a time per agent, and acting on the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.experiments.assignment import Assignment, assign, is_audited
from ratchet.experiments.metrics import EffectEstimate, ExperimentMetrics
from ratchet.experiments.promotion_rule import judge, lacks_only_age
from ratchet.experiments.unit import Audit, Enrolment, Outcome, Unit, UnitLine
from schemas.records.evidence import Band, Evidence, ExperimentDecision, ExperimentPlan, HistoryPoint, RampStep

SAME_SHARE = 1e-9
SPREAD = 0.9
"""Part of the units left that is spread over the time left. The others are kept: the verdict needs a unit that is old
enough, and fleets that pool their evidence admit a few too many, because each sees the others' units late."""


@dataclass(frozen=True, slots=True)
class ExperimentSnapshot:
    """An experiment as it stood at one moment, for whoever has the time to work out its bands."""

    plan: ExperimentPlan
    evidence: Evidence
    sequence: int | None
    final: ExperimentDecision | None
    estimate: EffectEstimate

    @property
    def decision(self) -> ExperimentDecision:
        """The decision as of then. The band costs some 30 µs a unit each time."""
        return self.final or decide(self.plan, self.evidence, self.sequence, self.estimate.band)

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        """The history as of then. The bands cost some 30 µs a unit each time."""
        return self.estimate.history


def decide(plan: ExperimentPlan, evidence: Evidence, sequence: int | None, band: Band) -> ExperimentDecision:
    verdict, reason = judge(plan, evidence)
    return ExperimentDecision(
        experiment_id=plan.experiment_id,
        verdict=verdict,
        reason=reason,
        sequence=sequence,
        evidence=evidence,
        band=band,
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of an experiment to which only the minimum age is missing: what is left of its budget lasts until then.

    Spreads the units after the first `units` evenly from one moment to another (seconds since the epoch), by time
    alone: the arms and the evidence are not known here.
    """

    units: int
    max_units: int
    since: float
    until: float

    def allows(self, enrolled: int, at: float) -> bool:
        """True if one more unit may follow the `enrolled` ones at this moment."""
        if not self.since <= at < self.until:  # before: a clock that was set back must not hold up the experiment
            return True
        elapsed = (at - self.since) / (self.until - self.since)
        return enrolled < self.units + SPREAD * (self.max_units - self.units) * elapsed


class Experiment:
    """State is bounded by the plan's budget of units: a session's arm each, and the units not yet finished."""

    def __init__(self, plan: ExperimentPlan, secret: str | None = "") -> None:
        """`secret`: what its arms are drawn by; None where it is lost, and nothing can be drawn any more."""
        self.plan = plan
        self._secret = secret
        self._line = self._new_line()
        self._metrics = ExperimentMetrics(plan)
        self._step = 0
        self._candidates_at_step = 0
        self._sequence: int | None = None
        self._pace: Pace | None = None
        self._final: ExperimentDecision | None = None

    @property
    def share(self) -> float:
        """Probability with which the next new unit is given to the candidate."""
        return self._ramp_step.share

    @property
    def decision(self) -> ExperimentDecision:
        """The verdict as of the last finished unit, with its evidence. The band costs some 30 µs a unit each time."""
        return self._final or self._decide(self.evidence)

    @property
    def final(self) -> ExperimentDecision | None:
        """The verdict that ended the experiment; None while it goes on."""
        return self._final

    @property
    def evidence(self) -> Evidence:
        """The evidence as of the last finished unit; cheap."""
        return self._metrics.evidence(step=self._step, share=self.share)

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        """The history in at most 400 points, evenly spaced in units. The bands cost some 30 µs a unit each time."""
        return self._metrics.history

    @property
    def snapshot(self) -> ExperimentSnapshot:
        """The state as of now: cheap, and unmoved by what comes later. Its bands are worked out when asked for."""
        return ExperimentSnapshot(self.plan, self.evidence, self._sequence, self._final, self._metrics.estimate)

    @property
    def can_draw(self) -> bool:
        """True if the secret of its draws is at hand."""
        return self._secret is not None

    def knows(self, session_id: str) -> bool:
        """True if it has given the session an arm, which the session keeps."""
        return self._final is None and self._line.arm_of(session_id) is not None

    def arm_for(
        self, unit_id: str, *, in_session: bool, share: float | None = None, at: float | None = None
    ) -> Assignment | None:
        """The arm of a task about to be admitted; None: it stays out of the experiment and gets the primary.

        `share`: probability of the candidate, where it is not that of the plan; known before the unit. `at`: the time,
        in seconds since the epoch; None where it is not known.

        A session keeps the arm it has. New units stay out while the candidate has too many unfinished ones, so that a
        flood can't give it thousands of answers before the first is judged, and once the budget is handed out. While
        only the minimum age is missing, new units are admitted at a pace at which the budget lasts until then.
        """
        if self._final is not None or self._secret is None:
            return None
        if in_session and (known := self._line.arm_of(unit_id)):
            return known
        if self._line.enrolled >= self.plan.max_units or self._line.open_candidates >= self._ramp_step.open_candidates:
            return None
        if self._pace and at is not None and not self._pace.allows(self._line.enrolled, at):
            return None
        return assign(self.plan.experiment_id, unit_id, self.share if share is None else share, self._secret)

    def enrol(self, enrolment: Enrolment) -> ExperimentDecision | None:
        """A task's assignment, once it is logged, in the order of the log. Returns the verdict if this brought it."""
        if self._final is None:
            self._line.enrol(enrolment)
        return self._fold()

    def observe(self, sequence: int, outcome: Outcome) -> ExperimentDecision | None:
        """A task's end, once it is logged, in any order; repetitions and other tasks are ignored.

        Returns the verdict if this brought it: at most one call in an experiment's life does.
        """
        if self._final is None:
            self._line.observe(sequence, outcome.by(self.plan.metric))
        return self._fold()

    def audits(self, unit_id: str) -> bool:
        """True if the plan has the unit's answers audited, or the scorer asked once more about those users got."""
        rule = self.plan.audit or self.plan.served
        return rule is not None and is_audited(self.plan.experiment_id, unit_id, rule.share)

    def audit(self, sequence: int, audit: Audit) -> ExperimentDecision | None:
        """The second verdict on a task, once it is logged, in any order. Returns the verdict if this brought it."""
        if self._final is None:
            self._line.audit(sequence, audit)
        return self._fold()

    @property
    def awaited_audits(self) -> frozenset[int]:
        """Tasks that have ended and count only once they are audited."""
        return self._line.awaited_audits

    def advance(self, at: float) -> ExperimentDecision | None:
        """Close idle sessions. All that was admitted before `at` (seconds since the epoch) must be enrolled."""
        self._line.advance(at)
        return self._fold()

    def _new_line(self) -> UnitLine:
        return UnitLine(
            session_tasks=self.plan.session_tasks,
            session_window_s=self.plan.session_window_s,
            is_audited=self.audits,
            by_auditor=self.plan.audit is not None,
        )

    @property
    def _ramp_step(self) -> RampStep:
        return self.plan.ramp[self._step]

    def _fold(self) -> ExperimentDecision | None:
        if self._final is not None:
            return None
        for unit in self._line.finished_units():
            self._count(unit)
            if self._metrics.is_calm:
                self._pace = None
                continue
            evidence = self.evidence
            if judge(self.plan, evidence)[0].final:
                return self._latch(evidence)
            self._set_pace(evidence, unit.at)
        return None

    def _set_pace(self, evidence: Evidence, at: float) -> None:
        """Keep the pace while nothing but the age is missing; begin one, or give it up, where that changes."""
        if not lacks_only_age(self.plan, evidence):
            self._pace = None
        elif self._pace is None:
            until = at + self.plan.min_age_s - evidence.age_s
            self._pace = Pace(evidence.units, self.plan.max_units, at, until)

    def _count(self, unit: Unit) -> None:
        self._metrics.observe(unit)
        self._sequence = unit.sequence
        self._candidates_at_step += unit.is_candidate and abs(unit.share - self.share) < SAME_SHARE
        self._climb()

    def _climb(self) -> None:
        """Go to the next share when the candidate has shown enough at this one and nothing speaks of harm."""
        enough = self._candidates_at_step >= self._ramp_step.candidate_units
        if enough and self._step < len(self.plan.ramp) - 1 and self._metrics.harm < self.plan.hold_ramp_at:
            self._step += 1
            self._candidates_at_step = 0

    def _decide(self, evidence: Evidence) -> ExperimentDecision:
        return decide(self.plan, evidence, self._sequence, self._metrics.band)

    def _latch(self, evidence: Evidence) -> ExperimentDecision:
        """Final. Nothing waits any more, so nothing is kept waiting."""
        self._final = self._decide(evidence)
        self._line = self._new_line()
        return self._final
