"""What is measured in one experiment, unit by unit: four metrics, the share check, the band, and plain means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ratchet.experiments.confidence import EffectBand
from ratchet.experiments.e_process import LARGEST, SampleRatioCheck
from ratchet.experiments.effect import EffectTest, HarmTest, Relative, factor_of, loss_of
from ratchet.experiments.unit import Audit, Unit
from schemas.records.evidence import ArmSummary, AuditRule, Band, Change, Evidence, ExperimentPlan, HistoryPoint

HARM_WEIGHTS = (0.5, 0.3, 0.1, 0.1)
"""Of score, success, length and latency. Four tests at alpha each would raise a false alarm in up to four times as many
experiments; a weighted mean of e-processes is an e-process itself, so one threshold keeps the whole at alpha."""

HARM_WEIGHTS_WITH_REFUSALS = (0.5, 0.25, 0.1, 0.1, 0.05)
"""Of plans with limits: the fifth is of refusals."""

AUDIT_WEIGHT = 0.2
"""Of the auditor's score in harm, where there is an auditor; the other weights share the rest."""

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
    """The auditor's word on the candidate, of the units it was to see.

    That no loss beyond the margin is left must be proved with what it did not score at its worst, as in the bounds of
    the score. For harm the unscored is no evidence: an auditor that is away accuses nobody.
    """

    def __init__(self, rule: AuditRule) -> None:
        self._kept = EffectTest(margin=-rule.margin, tolerance=0.0)
        self._seen = HarmTest(rule.tolerance)
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
    def evidence(self) -> dict[str, Any]:
        return {
            "audited": self.units,
            "audit_effect": self._seen.mean.value,
            "gain_audit": self._kept.gain.e,
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
        """Of the score."""
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
        self._score = EffectTest(margin=plan.min_gain, tolerance=plan.score_tolerance)
        limits = plan.limits
        success_margin = plan.success_margin if limits is None else limits.success
        self._success = EffectTest(margin=-success_margin, tolerance=plan.success_tolerance)
        self._bounds = EffectTest(margin=-plan.success_margin, tolerance=0.0) if plan.by_intention else None
        self._length = _size_test(plan.length_tolerance, limits.length if limits else None)
        self._latency = _size_test(plan.latency_tolerance, limits.latency if limits else None)
        self._refused = EffectTest(margin=-limits.refused, tolerance=plan.refused_tolerance) if limits else None
        self._audit = AuditTest(plan.audit) if plan.audit else None
        self._relative_length = Relative(TYPICAL_TOKENS)
        self._relative_latency = Relative(TYPICAL_SECONDS)
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
        tests: tuple[HarmTest, ...] = (self._score, self._success, self._length, self._latency)
        weights: tuple[float, ...] = HARM_WEIGHTS
        if self._refused is not None:
            tests, weights = (*tests, self._refused), HARM_WEIGHTS_WITH_REFUSALS
        judged = sum(weight * test.harm.e for weight, test in zip(weights, tests, strict=True))
        if self._audit is not None:
            judged = (1.0 - AUDIT_WEIGHT) * judged + AUDIT_WEIGHT * self._audit.harm
        return min(judged, LARGEST)

    @property
    def change(self) -> Change:
        """Of candidate to primary, estimated."""
        return Change.model_construct(
            score=self._score.mean.value,
            success=self._success.mean.value,
            refused=-self._refused.mean.value if self._refused is not None else 0.0,
            length=factor_of(self._length.mean.value),
            latency=factor_of(self._latency.mean.value),
        )

    def observe(self, unit: Unit) -> None:
        if self._bounds is not None:
            unit = replace(unit, score=unit.known / unit.scored if unit.scored else None, success=unit.scored)
        if self._refused is None:
            unit = replace(unit, refused=None)
        self._grow_older(unit.at)
        for scorer in unit.scorers:
            self._identify(scorer)
        self._test(unit)
        (self._candidate if unit.is_candidate else self._primary).observe(unit)
        if self._history.wants(self.units):
            self._history.add(EValues(units=self.units, share=unit.share, gain=self._score.gain.e, harm=self.harm))

    def evidence(self, *, step: int, share: float) -> Evidence:
        return Evidence.model_construct(
            units=self.units,
            step=step,
            share=share,
            age_s=self._age_s,
            candidate=self._candidate.summary,
            primary=self._primary.summary,
            gain_score=self._score.gain.e,
            gain_success=self._success.gain.e,
            gain_bounds=self._bounds.gain.e if self._bounds is not None else None,
            kept_length=_kept(self._length),
            kept_latency=_kept(self._latency),
            kept_refused=_kept(self._refused),
            change=self.change if self._refused is not None else None,
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
        )

    @property
    def band(self) -> Band:
        """Of the score."""
        return self._estimate.band

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        return self._estimate.history

    @property
    def estimate(self) -> EffectEstimate:
        """As of now: what is observed later does not change it. Costs a copy of 40 bytes a unit."""
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
        length = self._relative_length.scale(unit.length, is_candidate=arm, stratum=stratum)
        latency = self._relative_latency.scale(unit.latency_s, is_candidate=arm, stratum=stratum)
        weight = unit.scored if self._bounds is not None else 1.0
        contrast = self._score.observe(unit.score, is_candidate=arm, share=share, stratum=stratum, weight=weight)
        if self._bounds is not None:
            worst = unit.known + (1.0 - unit.scored) * (0.0 if arm else 1.0)
            self._bounds.observe(worst, is_candidate=arm, share=share, stratum=stratum)
        self._band.observe(contrast, share=share)
        self._success.observe(unit.success, is_candidate=arm, share=share, stratum=stratum)
        self._length.observe(length, is_candidate=arm, share=share, stratum=stratum)
        self._latency.observe(latency, is_candidate=arm, share=share, stratum=stratum)
        if self._refused is not None:
            answered = None if unit.refused is None else 1.0 - unit.refused
            self._refused.observe(answered, is_candidate=arm, share=share, stratum=stratum)
        if self._audit is not None and unit.audit is not None:
            self._audit.observe(unit.audit, is_candidate=arm, share=share, stratum=stratum)
        self._ratio.observe(is_candidate=arm, share=share)


def _size_test(tolerance: float, limit: float | None) -> HarmTest:
    return HarmTest(tolerance) if limit is None else EffectTest(margin=-loss_of(limit), tolerance=tolerance)


def _kept(test: HarmTest | None) -> float | None:
    return test.gain.e if isinstance(test, EffectTest) else None
