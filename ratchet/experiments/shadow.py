"""The shadow replay: a candidate's answers to logged prompts beside those of the primary, prompt by prompt. Pure.

Of a prompt with the outcomes c (the candidate's) and p (the primary's) the difference c − p is bet on by the
e-processes of e_process.py. Prompts are drawn at random from those that no training of the candidate saw, so given the
past each difference has the mean of such traffic, and the null "worse by at most the tolerance", or "worse by at least
the margin", may be tested after every prompt. Bounds are the same for all prompts: a bet that knew the prompt's type or
the primary's logged score would need a null of its own for each.

Sizes are compared by their means: "the candidate's mean is at least L times that of the other", each size clipped at
eight times the other's mean so far, as live. Prompts of types that were drawn too seldom are `extra`: they say
something of their type alone. Tasks of a golden set are nobody's traffic: they count for harm and gain, not for what is
kept.

Left to the caller: drawing the prompts, asking, and what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ratchet.experiments.e_process import LARGEST, BettingProcess
from ratchet.experiments.effect import LARGEST_SIZE
from ratchet.experiments.unit import Outcome
from schemas.records.evidence import Change, Limits, ReplayedEvidence

LEAST_MEASURED = 30
"""Prompts from which on a mean against v1.0.0 counts as measured."""
ENOUGH = 4.0
"""Times what the live test asks for: with 2 it could lack a little once its own evidence has fallen at first."""
HARM_WEIGHTS = {"score": 0.4, "success": 0.15, "length": 0.1, "refusals": 0.05, "types": 0.2, "v1.0.0": 0.1}
"""A weighted mean of e-processes is one itself, so one threshold keeps the error of all of them together at alpha."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt. `other`: the primary's outcome; `base`: v1.0.0's, where it is not the primary."""

    task_type: str
    candidate: Outcome
    other: Outcome
    base: Outcome | None = None
    extra: bool = False
    is_traffic: bool = True


class SizeMeans:
    """Payoffs of "the mean is at most `limit` times the other's", each size clipped at eight times the other's mean."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._total, self._count = 0.0, 0
        self.kept = BettingProcess()
        self.beyond = BettingProcess()
        self._sums = [0.0, 0.0]

    def observe(self, size: float | None, other: float | None, *, counts: bool = True) -> None:
        """`counts`: whether it speaks for the limit being kept, too."""
        if size is None or other is None:
            return
        if self._total > 0.0:
            clip = LARGEST_SIZE * self._total / self._count
            self._compare(min(size, clip), min(other, clip), clip, counts)
        self._total += other
        self._count += 1

    def _compare(self, ours: float, theirs: float, clip: float, counts: bool) -> None:
        if counts:
            self.kept.bet(self._limit * theirs - ours, clip)
            self._sums[0] += ours
            self._sums[1] += theirs
        self.beyond.bet(ours - self._limit * theirs, self._limit * clip)

    @property
    def factor(self) -> float:
        """The estimated ratio of its mean to the other's."""
        return self._sums[0] / self._sums[1] if min(self._sums) > 0 else 1.0


class Difference:
    """The e-processes of one share or score in [0, 1]: for harm beyond a tolerance and for no loss beyond a margin."""

    def __init__(self, *, margin: float, tolerance: float) -> None:
        self._margin = margin
        self._tolerance = tolerance
        self.kept = BettingProcess()
        self.harm = BettingProcess()
        self._total, self.count = 0.0, 0

    def observe(self, difference: float, *, counts: bool = True) -> None:
        self.harm.bet(-difference - self._tolerance, 1.0 + self._tolerance)
        if counts:
            self.kept.bet(difference + self._margin, 1.0 - self._margin)
            self._total += difference
            self.count += 1

    @property
    def mean(self) -> float:
        return self._total / self.count if self.count else 0.0


class Comparison:
    """The candidate beside one other version: what must be kept within the limits."""

    def __init__(self, limits: Limits, success_tolerance: float, refused_tolerance: float) -> None:
        self.success = Difference(margin=limits.success, tolerance=success_tolerance)
        self.refused = Difference(margin=limits.refused, tolerance=refused_tolerance)
        self.length = SizeMeans(limits.length)
        self.score = Difference(margin=0.0, tolerance=0.0)

    def observe(self, ours: Outcome, other: Outcome, *, counts: bool) -> None:
        self.success.observe(ours.usable - other.usable, counts=counts)
        if ours.refused is not None and other.refused is not None:
            self.refused.observe(other.refused - ours.refused, counts=counts)
        self.length.observe(ours.length, other.length, counts=counts)
        if ours.score is not None and other.score is not None:
            self.score.observe(ours.score - other.score, counts=counts)

    @property
    def change(self) -> Change | None:
        """Measured on these prompts; None from too few. Latency is not measured here."""
        if self.success.count < LEAST_MEASURED:
            return None
        return Change(
            score=self.score.mean, success=self.success.mean, refused=-self.refused.mean, length=self.length.factor
        )


@dataclass(frozen=True, slots=True)
class ShadowRule:
    """`alpha`: of a refusal of an equal candidate. `promote_at`: the e-value that its live test will ask for.

    `limits`: the fleet's, which hold against the primary and against v1.0.0.
    """

    limits: Limits
    alpha: float
    promote_at: float
    success_margin: float
    score_tolerance: float
    success_tolerance: float
    refused_tolerance: float
    type_tolerance: float
    types: tuple[str, ...] = ()
    """The types that are judged by themselves, known before the first answer; none where there is one type."""


@dataclass
class ShadowReplay:
    """Feed it pairs in the order in which they were drawn."""

    rule: ShadowRule
    prompts: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """Prompts by task type, of traffic."""

    def __post_init__(self) -> None:
        rule = self.rule
        tolerances = (rule.success_tolerance, rule.refused_tolerance)
        self._score = Difference(margin=0.0, tolerance=rule.score_tolerance)
        self._bounds = Difference(margin=rule.success_margin, tolerance=0.0)
        self._primary = Comparison(rule.limits, *tolerances)
        self._base = Comparison(rule.limits, rule.limits.success, rule.limits.refused)
        self._primary_since_base = Comparison(rule.limits, *tolerances)
        self._types = {name: Difference(margin=0.0, tolerance=rule.type_tolerance) for name in rule.types}
        self._has_base = False
        self._latencies = (0.0, 0)
        """Latencies of the other side: their sum in seconds, and how many."""
        self.ours_scored = self.others_scored = 0

    def observe(self, pair: Pair) -> None:
        ours, other, counts = pair.candidate, pair.other, pair.is_traffic
        self.prompts += 1
        self.ours_scored += ours.score is not None
        self.others_scored += other.score is not None
        if counts:
            self.seen[pair.task_type] = self.seen.get(pair.task_type, 0) + 1
        difference = ours.score - other.score if ours.score is not None and other.score is not None else None
        if difference is not None and pair.task_type in self._types:
            self._types[pair.task_type].observe(difference)
        if pair.extra:
            return
        if difference is not None:
            self._score.observe(difference)
        worst = ours.usable * (ours.score or 0.0) - other.usable * (other.score or 0.0) - (1.0 - other.usable)
        self._bounds.observe(worst, counts=counts)
        self._primary.observe(ours, other, counts=counts)
        if counts and other.latency_s is not None:
            total, count = self._latencies
            self._latencies = total + other.latency_s, count + 1
        if pair.base is not None:
            self._has_base = True
            self._base.observe(ours, pair.base, counts=counts)
            self._primary_since_base.observe(other, pair.base, counts=counts)

    @property
    def harms(self) -> dict[str, float]:
        """E-values for harm by name: beside the primary, in single types, and beyond the limits since v1.0.0."""
        found = {
            "score": self._score.harm.e,
            "success": self._primary.success.harm.e,
            "length": self._primary.length.beyond.e,
            "refusals": self._primary.refused.harm.e,
        }
        if self._types:
            found["types"] = sum(one.harm.e / len(self._types) for one in self._types.values())
        if self._has_base:
            base = (self._base.success.harm.e, self._base.refused.harm.e, self._base.length.beyond.e)
            found["v1.0.0"] = sum(base) / len(base)
        return found

    @property
    def harm(self) -> float:
        """The one e-value that is compared with 1 / alpha."""
        harms = self.harms
        total = sum(HARM_WEIGHTS[name] for name in harms)
        return min(sum(HARM_WEIGHTS[name] * e for name, e in harms.items()) / total, LARGEST)

    @property
    def is_harmful(self) -> bool:
        return self.harm >= 1.0 / self.rule.alpha

    @property
    def is_broken(self) -> bool:
        """It has not one score, on prompts on which the other has some."""
        return not self.ours_scored and self.others_scored > 0

    @property
    def is_over(self) -> bool:
        """True if more prompts could change nothing."""
        return self.is_harmful or self.is_proved

    @property
    def gain(self) -> float:
        return self._score.kept.e

    @property
    def effect(self) -> float:
        """The effect on the score, estimated."""
        return self._score.mean

    @property
    def kept(self) -> dict[str, float]:
        """E-values for "within the limit", of traffic alone: against the primary, and against v1.0.0 where that
        answered too. The lesser of two e-values is one for "beyond either"."""
        sides = (self._primary, self._base) if self._has_base else (self._primary,)
        return {
            "success": min(side.success.kept.e for side in sides),
            "bounds": self._bounds.kept.e,
            "length": min(side.length.kept.e for side in sides),
            "refused": min(side.refused.kept.e for side in sides),
        }

    @property
    def replayed(self) -> ReplayedEvidence:
        """The evidence that the plan of the live test takes over."""
        total, count = self._latencies
        return ReplayedEvidence(
            prompts=sum(self.seen.values()),
            score=self._primary.score.kept.e,
            usual_latency_s=total / count if total > 0.0 else None,
            types=self.seen,
            **self.kept,
        )

    @property
    def is_proved(self) -> bool:
        """The gain, and all that the live test needs not prove again.

        Of each the live test takes (1 + e)/2 times its own e-value, which begins at 1 and may fall at first.
        """
        if self.gain < 1.0 / self.rule.alpha:
            return False
        return min(self.kept.values()) >= ENOUGH * self.rule.promote_at

    @property
    def since_base(self) -> Change | None:
        """The change of the primary since v1.0.0, as measured on the same prompts; None where it was not."""
        return self._primary_since_base.change if self._has_base else None

    @property
    def worst(self) -> str:
        """The name of what it is worst in, for a sentence."""
        harms = self.harms
        name = max(harms, key=lambda one: HARM_WEIGHTS[one] * harms[one])
        if name == "types":
            kind = max(self._types, key=lambda one: self._types[one].harm.log_e)
            return f"score of the task type {kind or 'without a name'}"
        return "the limits since v1.0.0" if name == "v1.0.0" else name

    @property
    def sentence(self) -> str:
        return (
            f"{self.prompts} prompts, score {self.effect:+.3f}, e-values for harm {self.harm:.3g} of "
            f"{1.0 / self.rule.alpha:g}, for a gain {self.gain:.3g}"
        )

    @property
    def evidence(self) -> dict[str, object]:
        """The fields for the ledger of decisions."""
        measured = {"since_base": self.since_base.model_dump()} if self.since_base else {}
        return {
            "prompts": self.prompts,
            "types": dict(self.seen),
            "effect": self.effect,
            "harm": self.harm,
            "harm_in": self.harms,
            "gain": self.gain,
            "kept": self.kept,
            **measured,
        }


def judged_types(counts: Mapping[str, int], least: int) -> tuple[str, ...]:
    """The types with enough prompts to be judged by themselves; none where all prompts are of one."""
    return tuple(sorted(name for name, count in counts.items() if count >= least)) if len(counts) > 1 else ()
