"""The measurements of one experiment, unit by unit: four metrics, the share check, the band, and plain means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ratchet.experiments.confidence import EffectBand
from ratchet.experiments.e_process import LARGEST, SampleRatioCheck
from ratchet.experiments.effect import EffectTest, HarmTest, RelativeSizeTest, SizeTest, factor_of
from ratchet.experiments.type_veto import TypeVeto
from ratchet.experiments.unit import Audit, Unit
from schemas.records.evidence import (
    ArmSummary,
    AuditRule,
    Band,
    Change,
    Evidence,
    ExperimentPlan,
    HistoryPoint,
    ReplayedEvidence,
    ServedRule,
)

HARM_WEIGHTS = (0.5, 0.3, 0.1, 0.1)
"""Weights of score, success, length and latency. Four tests at alpha each would raise a false alarm in up to four times
as many experiments; a weighted mean of e-processes is an e-process itself, so one threshold keeps the whole at alpha.
"""

HARM_WEIGHTS_WITH_REFUSALS = (0.5, 0.25, 0.1, 0.1, 0.05)
"""Weights in plans with limits: the fifth is of refusals."""

AUDIT_WEIGHT = 0.2
"""Weight of the auditor's score in harm, where there is an auditor; the other weights share the rest."""

SERVED_WEIGHT = 0.1
"""Weight of the second verdicts on what users are served, where the plan asks for them; the others share the rest."""

AnySizeTest = SizeTest | RelativeSizeTest

NOT_REPLAYED = ReplayedEvidence(prompts=0)

MAX_POINTS = 400
TYPICAL_TOKENS = 50.0
TYPICAL_SECONDS = 1.0


class MeanOf:
    """A running mean of what was measured."""

    __slots__ = ("_count", "_total")

    def __init__(self) -> None:
        self._total = 0.0
        self._count = 0

    def add(self, value: float | None) -> None:
        if value is not None:
            self._total += value
            self._count += 1

    @property
    def value(self) -> float | None:
        return self._total / self._count if self._count else None


class ArmMeans:
    """Plain means of one arm, for people to read."""

    def __init__(self) -> None:
        self.units = 0
        self._score = MeanOf()
        self._success = MeanOf()
        self._length = MeanOf()
        self._latency = MeanOf()
        self._refused = MeanOf()
        self._audit = MeanOf()
        self._calls = MeanOf()
        self._turns = MeanOf()

    def observe(self, unit: Unit) -> None:
        self.units += 1
        self._score.add(unit.score)
        self._success.add(unit.success)
        self._length.add(unit.length)
        self._latency.add(unit.latency_s)
        self._refused.add(unit.refused)
        self._audit.add(unit.audit.score if unit.audit else None)
        self._calls.add(unit.calls)
        self._turns.add(unit.turns)

    @property
    def summary(self) -> ArmSummary:
        return ArmSummary.model_construct(
            units=self.units,
            score=self._score.value,
            success=self._success.value,
            length=self._length.value,
            latency_s=self._latency.value,
            refused=self._refused.value,
            audit=self._audit.value,
            calls=self._calls.value,
            turns=self._turns.value,
        )


class AuditTest:
    """The test of second verdicts on the candidate, of the units that were to have them.

    That no loss beyond the margin is left must be proved with what has none at its worst, as in the bounds of the
    score. For harm the unscored is no evidence: a judge that is away accuses nobody.
    """

    def __init__(self, rule: AuditRule | ServedRule, *, pooled: bool) -> None:
        self._kept = EffectTest(margin=-rule.margin, tolerance=0.0, pooled=pooled)
        self._seen = HarmTest(rule.tolerance, pooled=pooled)
        self.units = 0
        self.auditor: str | None = None
        self.foreign_auditor: str | None = None

    def observe(self, audit: Audit, *, is_candidate: bool, share: float, stratum: str) -> None:
        self.units += 1
        for name in audit.auditors:
            self.auditor = self.auditor or name
            if name != self.auditor:
                self.foreign_auditor = self.foreign_auditor or name
        worst = audit.known + (1.0 - audit.scored) * (0.0 if is_candidate else 1.0)
        self._kept.observe(worst, is_candidate=is_candidate, share=share, stratum=stratum)
        self._seen.observe(audit.score, is_candidate=is_candidate, share=share, stratum=stratum, weight=audit.scored)

    @property
    def harm(self) -> float:
        return self._seen.harm.e

    @property
    def effect(self) -> float:
        return self._seen.mean.value

    @property
    def gain(self) -> float:
        return self._kept.gain.e

    @property
    def evidence(self) -> dict[str, Any]:
        """The fields that the auditor adds to the evidence."""
        return {
            "audited": self.units,
            "audit_effect": self.effect,
            "gain_audit": self.gain,
            "harm_audit": self.harm,
            "auditor": self.auditor,
            "foreign_auditor": self.foreign_auditor,
        }


NO_AUDIT = dict.fromkeys(("audited", "audit_effect", "gain_audit", "harm_audit", "auditor", "foreign_auditor"))


@dataclass(frozen=True, slots=True)
class EValues:
    """The e-values for gain and harm after `units` finished units; drawn, and deciding nothing."""

    units: int
    share: float
    gain: float
    harm: float


class History:
    """A bounded list, evenly thinned as it grows: every `stride`-th unit; the stride doubles whenever it is full."""

    def __init__(self) -> None:
        self._points: list[EValues] = []
        self._stride = 1

    def wants(self, units: int) -> bool:
        return units % self._stride == 0

    def add(self, values: EValues) -> None:
        self._points.append(values)
        if len(self._points) >= MAX_POINTS:
            self._stride *= 2
            self._points = [kept for kept in self._points if self.wants(kept.units)]

    @property
    def points(self) -> tuple[EValues, ...]:
        return tuple(self._points)


@dataclass(frozen=True, slots=True)
class EffectEstimate:
    """The effect on the score with its band, and their history; worked out when asked for."""

    units: int
    effect: EffectBand
    points: tuple[EValues, ...]

    @property
    def band(self) -> Band:
        """The band of the effect on the score."""
        return self.effect.after([self.units])[0]

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        bands = self.effect.after([point.units for point in self.points])
        return tuple(
            HistoryPoint(units=point.units, share=point.share, band=band, gain=point.gain, harm=point.harm)
            for point, band in zip(self.points, bands, strict=True)
        )


class ExperimentMetrics:
    """Feed it finished units in the order of their assignment."""

    def __init__(self, plan: ExperimentPlan) -> None:
        limits, pooled = plan.limits, plan.rule > 1
        success_margin = plan.success_margin if limits is None else limits.success

        def effect(margin: float, tolerance: float) -> EffectTest:
            return EffectTest(margin=margin, tolerance=tolerance, pooled=pooled)

        self._plan = plan
        self._replayed = plan.replayed or NOT_REPLAYED
        self._score = effect(plan.min_gain, plan.score_tolerance)
        self._success = effect(-success_margin, plan.success_tolerance)
        self._bounds = effect(-plan.success_margin, 0.0) if plan.by_intention else None
        self._length = _size_test(plan, TYPICAL_TOKENS, plan.length_tolerance, limits.length if limits else None)
        self._latency = _size_test(
            plan,
            TYPICAL_SECONDS,
            plan.latency_tolerance,
            limits.latency if limits else None,
            usual=self._replayed.usual_latency_s,
        )
        self._refused = effect(-limits.refused, plan.refused_tolerance) if limits else None
        self._audit = AuditTest(plan.audit, pooled=pooled) if plan.audit else None
        self._served = AuditTest(plan.served, pooled=pooled) if plan.served else None
        self._scorer_again = plan.served is not None and plan.audit is None
        self._score_is_fresh = self._scorer_again and plan.metric == "served"
        veto = TypeVeto(plan.type_tolerance, plan.min_type_units, self._replayed.types, shares_errors=plan.rule > 2)
        self._types = veto if pooled else None
        self._ratio = SampleRatioCheck()
        self._band = EffectBand(plan.alpha)
        self._history = History()
        self._candidate = ArmMeans()
        self._primary = ArmMeans()
        self._scorer = plan.scorer
        self._foreign_scorer: str | None = None
        self._began: float | None = None
        self._age_s = 0.0

    @property
    def units(self) -> int:
        return self._candidate.units + self._primary.units

    @property
    def harm(self) -> float:
        tests: tuple[HarmTest | AnySizeTest, ...] = (self._score, self._success, self._length, self._latency)
        weights: tuple[float, ...] = HARM_WEIGHTS
        if self._refused is not None:
            tests, weights = (*tests, self._refused), HARM_WEIGHTS_WITH_REFUSALS
        judged = sum(weight * test.harm.e for weight, test in zip(weights, tests, strict=True))
        if self._audit is not None:
            judged = (1.0 - AUDIT_WEIGHT) * judged + AUDIT_WEIGHT * self._audit.harm
        if self._served is not None:
            judged = (1.0 - SERVED_WEIGHT) * judged + SERVED_WEIGHT * self._served.harm
        return min(judged, LARGEST)

    @property
    def is_calm(self) -> bool:
        """True only where `judge` goes on: told by the few e-values that can end the experiment, since the whole
        evidence takes longer than all tests together."""
        plan, foreign = self._plan, [test.foreign_auditor for test in (self._audit, self._served) if test]
        return (
            self.units < plan.max_units
            and self._score.gain.e < plan.promote_at
            and max(self.harm, self._types.worst[1] if self._types else 0.0) < plan.roll_back_at
            and self._ratio.e < plan.abort_at
            and not any((self._foreign_scorer, *foreign))
        )

    @property
    def change(self) -> Change:
        """The change from primary to candidate, estimated."""
        return Change.model_construct(
            score=self._score.mean.value,
            success=self._success.mean.value,
            refused=-self._refused.mean.value if self._refused is not None else 0.0,
            length=self._length.factor,
            latency=self._latency.factor,
        )

    def observe(self, unit: Unit) -> None:
        if self._bounds is not None:
            unit = replace(unit, score=unit.known / unit.scored if unit.scored else None, success=unit.scored)
        if self._refused is None:
            unit = replace(unit, refused=None)
        if self._score_is_fresh:
            unit = _judged_afresh(unit)
        self._grow_older(unit.at)
        for scorer in unit.scorers:
            self._identify(scorer)
        for scorer in unit.served.auditors if unit.served and self._scorer_again else ():
            self._identify(scorer)
        self._test(unit)
        (self._candidate if unit.is_candidate else self._primary).observe(unit)
        if self._history.wants(self.units):
            self._history.add(EValues(units=self.units, share=unit.share, gain=self._score.gain.e, harm=self.harm))

    def evidence(self, *, step: int, share: float) -> Evidence:
        replayed, types = self._replayed, self._types
        worst_type, harm_type = types.worst if types else (None, None)
        return Evidence.model_construct(
            units=self.units,
            step=step,
            share=share,
            age_s=self._age_s,
            candidate=self._candidate.summary,
            primary=self._primary.summary,
            gain_score=self._score.gain.e,
            gain_success=_join_e_values(self._success.gain.e, replayed.success),
            gain_bounds=_join_e_values(self._bounds.gain.e, replayed.bounds) if self._bounds else None,
            kept_length=_e_value_of_kept(self._length.kept, replayed.length),
            kept_latency=self._latency.kept,
            kept_refused=_join_e_values(self._refused.gain.e, replayed.refused) if self._refused else None,
            change=self.change if self._refused is not None else None,
            harm_type=None if harm_type is None else min(harm_type, LARGEST),
            worst_type=worst_type,
            rare_types=types.rare if types else (),
            awaited_type=types.awaited if types else None,
            harm=self.harm,
            harm_score=self._score.harm.e,
            harm_success=self._success.harm.e,
            harm_length=self._length.harm.e,
            harm_latency=self._latency.harm.e,
            harm_refused=self._refused.harm.e if self._refused is not None else None,
            sample_ratio=self._ratio.e,
            scorer=self._scorer,
            foreign_scorer=self._foreign_scorer,
            **(self._audit.evidence if self._audit is not None else NO_AUDIT),
            served_units=self._served.units if self._served else None,
            served_effect=self._served.effect if self._served else None,
            gain_served=_join_e_values(self._served.gain, replayed.served) if self._served else None,
            harm_served=self._served.harm if self._served else None,
        )

    @property
    def band(self) -> Band:
        """The band of the effect on the score."""
        return self._estimate.band

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        return self._estimate.history

    @property
    def estimate(self) -> EffectEstimate:
        """The estimate as of now: what is observed later does not change it. Costs a copy of 40 bytes a unit."""
        return EffectEstimate(self.units, self._band.copy(), self._history.points)

    @property
    def _estimate(self) -> EffectEstimate:
        return EffectEstimate(self.units, self._band, self._history.points)

    def _grow_older(self, at: float) -> None:
        self._began = at if self._began is None else self._began
        self._age_s = max(self._age_s, at - self._began)

    def _identify(self, scorer: str) -> None:
        self._scorer = self._scorer or scorer
        if scorer != self._scorer:
            self._foreign_scorer = self._foreign_scorer or scorer

    def _test(self, unit: Unit) -> None:
        arm, share, stratum = unit.is_candidate, unit.share, unit.stratum
        weight = unit.scored if self._bounds is not None else 1.0
        contrast = self._score.observe(unit.score, is_candidate=arm, share=share, stratum=stratum, weight=weight)
        if self._bounds is not None:
            worst = unit.known + (1.0 - unit.scored) * (0.0 if arm else 1.0)
            self._bounds.observe(worst, is_candidate=arm, share=share, stratum=stratum)
        self._band.observe(contrast, share=share)
        self._success.observe(unit.success, is_candidate=arm, share=share, stratum=stratum)
        self._length.observe(unit.length, is_candidate=arm, share=share, stratum=stratum)
        self._latency.observe(unit.latency_s, is_candidate=arm, share=share, stratum=stratum)
        if self._refused is not None:
            answered = None if unit.refused is None else 1.0 - unit.refused
            self._refused.observe(answered, is_candidate=arm, share=share, stratum=stratum)
        if self._audit is not None and unit.audit is not None:
            self._audit.observe(unit.audit, is_candidate=arm, share=share, stratum=stratum)
        if self._served is not None and unit.served is not None:
            self._served.observe(unit.served, is_candidate=arm, share=share, stratum=stratum)
        if self._types is not None:
            self._types.observe(unit.score, is_candidate=arm, share=share, stratum=stratum, weight=weight)
        self._ratio.observe(is_candidate=arm, share=share)


def _judged_afresh(unit: Unit) -> Unit:
    """The unit with the second verdict on what its users got in the place of the first, which chose it; one that was
    not to have any is no evidence."""
    if unit.served is None:
        return replace(unit, score=None)
    return replace(unit, score=unit.served.score, known=unit.served.known, scored=unit.served.scored)


def _size_test(
    plan: ExperimentPlan, typical: float, tolerance: float, limit: float | None, usual: float | None = None
) -> AnySizeTest:
    if plan.rule == 1:
        return RelativeSizeTest(typical, limit=limit, tolerance=tolerance)
    return SizeTest(limit=limit, tolerance=factor_of(-tolerance), usual=usual)


def _join_e_values(live: float, replayed: float | None) -> float:
    """The e-value of both steps together: the mean of betting on the live test alone and on both."""
    return live if replayed is None else min(live * 0.5 * (1.0 + replayed), LARGEST)


def _e_value_of_kept(live: float | None, replayed: float | None) -> float | None:
    return None if live is None else _join_e_values(live, replayed)
