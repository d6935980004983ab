"""The effect of the candidate on one metric in [0, 1], higher is better: unit by unit, fair at any share and any mix.

Of a unit with outcome Y, given to the candidate with probability p (known before), the contrast is

    x = (Y − m)/p  if the candidate answered,  −(Y − m)/(1 − p)  if the primary did,

where m = (0.5 + ΣY)/(1 + n) is the mean of the *earlier* outcomes of the same stratum. Given the past and the
stratum, the arm is an independent coin with probability p, so E[x] = (E[Y¹] − m) − (E[Y⁰] − m) = E[Y¹ − Y⁰], whatever
m is: m only takes noise away. So E[x − margin] ≤ 0 says "better by no more than the margin", E[−x − tolerance] ≤ 0
"worse by no more than the tolerance", and the bounds follow from Y in [0, 1]: they depend on p and m alone, known
before the unit's arm.

The null says this of *every* unit given its past: a candidate that is better at first and worse later is not covered by
it (that is what the probation is for). Feeding units in another order than that of assignment breaks the proof: a late
outcome makes the past depend on the arm.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.experiments.e_process import BettingProcess

CAUTION = 2.0
"""Bets shrink by 1 + 2/n while a stratum's mean rests on n outcomes (the prior one included): before the mean is
learned, a large bet only loses. Found by simulation; valid at any value, since n is known before the unit."""

MAX_STRATA = 256
OTHER = "\0other"
"""Task types beyond the first 256 share one stratum: the memory is bounded whatever users send."""


class StratumMeans:
    """Running means per stratum, with one prior observation."""

    __slots__ = ("_prior", "_sums")

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._sums: dict[str, tuple[float, float]] = {}

    def mean(self, stratum: str) -> float:
        total, count = self._sums.get(self._key(stratum), (0.0, 0))
        return (self._prior + total) / (1 + count)

    def count(self, stratum: str) -> float:
        """Outcomes the mean rests on, the prior one included."""
        return 1 + self._sums.get(self._key(stratum), (0.0, 0))[1]

    def add(self, stratum: str, value: float, weight: float = 1.0) -> None:
        key = self._key(stratum)
        total, count = self._sums.get(key, (0.0, 0.0))
        self._sums[key] = (total + weight * value, count + weight)

    def _key(self, stratum: str) -> str:
        return stratum if stratum in self._sums or len(self._sums) < MAX_STRATA else OTHER


@dataclass(frozen=True, slots=True)
class Contrast:
    """An unbiased estimate `x` of candidate minus primary from one unit; it lies in [−loss, gain]."""

    x: float
    loss: float
    gain: float
    caution: float
    """At least 1: by how much to bet less, because m rests on few outcomes."""


def contrast(
    y: float | None, m: float, share: float, *, is_candidate: bool, caution: float = 1.0, weight: float = 1.0
) -> Contrast:
    """`y` in [0, 1], of which `weight` was measured. What was not (all of it, where `y` is None) counts as the expected
    value m: that is no evidence, while leaving the unit out would select units by their outcome."""
    rest = 1.0 - share
    surprise = 0.0 if y is None else weight * (y - m)
    return Contrast(
        x=surprise / share if is_candidate else -surprise / rest,
        loss=max(m / share, (1.0 - m) / rest),
        gain=max((1.0 - m) / share, m / rest),
        caution=caution,
    )


class EffectMean:
    """The mean of contrasts, weighted by p(1 − p): at a small share one contrast says little."""

    __slots__ = ("_total", "_weight")

    def __init__(self) -> None:
        self._total = 0.0
        self._weight = 0.0

    def add(self, unit: Contrast, share: float) -> None:
        weight = share * (1.0 - share)
        self._total += weight * unit.x
        self._weight += weight

    @property
    def value(self) -> float:
        return max(-1.0, min(1.0, self._total / self._weight)) if self._weight else 0.0


class HarmTest:
    """The e-process against "the candidate is worse by at most `tolerance`"."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._means = StratumMeans(prior=0.5)
        self.harm = BettingProcess()
        self.mean = EffectMean()
        """Of candidate minus primary; decides nothing here."""

    def observe(
        self, y: float | None, *, is_candidate: bool, share: float, stratum: str, weight: float = 1.0
    ) -> Contrast:
        """The next unit in the order of assignment. Returns what it was worth."""
        m, count = self._means.mean(stratum), self._means.count(stratum)
        unit = contrast(y, m, share, is_candidate=is_candidate, caution=1.0 + CAUTION / count, weight=weight)
        self._bet(unit)
        self.mean.add(unit, share)
        if y is not None:
            self._means.add(stratum, y, weight)
        return unit

    def _bet(self, unit: Contrast) -> None:
        self.harm.bet(-unit.x - self._tolerance, (unit.gain + self._tolerance) * unit.caution)


class EffectTest(HarmTest):
    """Beside harm, the e-process against "the candidate is better by at most `margin`".

    A negative margin makes it a test of non-inferiority: "worse by at least −margin" is what it refutes.
    """

    def __init__(self, *, margin: float, tolerance: float) -> None:
        super().__init__(tolerance)
        self._margin = margin
        self.gain = BettingProcess()

    def _bet(self, unit: Contrast) -> None:
        super()._bet(unit)
        self.gain.bet(unit.x - self._margin, (unit.loss + self._margin) * unit.caution)


class Relative:
    """Puts a size without an upper limit (tokens, seconds) on the scale of the tests: c/(c + size), in (0, 1].

    c is the running mean of the primary's earlier sizes in the stratum, so it is known before the unit: a usual answer
    gives about 0.5, one half as long again 0.4, whatever the unit of measure. No clipping, no tuning.
    """

    __slots__ = ("_usual",)

    def __init__(self, prior: float) -> None:
        self._usual = StratumMeans(prior)

    def scale(self, size: float | None, *, is_candidate: bool, stratum: str) -> float | None:
        if size is None:
            return None
        usual = self._usual.mean(stratum)
        if not is_candidate:
            self._usual.add(stratum, size)
        return usual / (usual + size)


def loss_of(factor: float) -> float:
    """What a size so many times the usual loses on the scale of `Relative`, where a usual one has 0.5."""
    return 0.5 - 1.0 / (1.0 + factor)


def factor_of(effect: float) -> float:
    """The way back: from candidate minus primary on that scale to how many times as large the candidate's is."""
    effect = max(-0.45, min(0.45, effect))
    return (0.5 - effect) / (0.5 + effect)
