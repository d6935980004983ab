"""The effect of the candidate on one metric, unit by unit, fair at any share and any mix of task types.

Of a unit with outcome Y in [0, 1], given to the candidate with probability p (known before), the contrast is

    x = (Y − m)/p  if the candidate answered,  −(Y − m)/(1 − p)  if the primary did,

where m is the mean of the *earlier* outcomes of the unit's stratum, its task type. Given the past and the stratum, the
arm is an independent coin with probability p, so E[x] = (E[Y¹] − m) − (E[Y⁰] − m) = E[Y¹ − Y⁰], whatever m is: m only
takes noise away. So E[x − margin] ≤ 0 says "better by no more than the margin", E[−x − tolerance] ≤ 0 "worse by no
more than the tolerance".

All strata are bet on with one bound and one caution, which depend on the past and p alone and not on the unit's
stratum. So the null is about the mean over the mix of strata: E[Y¹ − Y⁰] ≤ margin of the next unit given its past.
With a bound for each stratum the bets would weigh the strata anew, and a candidate that is worse on average could
gain. (Plans of rule 1 did that; they are replayed as they were.)

The null says this of *every* unit given its past: a candidate that is better at first and worse later is not covered by
it (that is what the watch is for). Feeding units in another order than that of assignment breaks the proof: a late
outcome makes the past depend on the arm.

Sizes (tokens, seconds) have no upper limit and are compared by their means: see `SizeTest`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.experiments.e_process import BettingProcess

CAUTION = 2.0
"""Bets shrink by 1 + 2/n while the means rest on n outcomes (the prior one included): before the means are learned, a
large bet only loses. Found by simulation; valid at any value, since n is known before the unit."""

LARGEST_SIZE = 8.0
"""An answer's size counts at most this many times the primary's mean."""

FIRST_SIZES = 10
"""Sizes of the primary that are only averaged: until then nobody knows what is usual, and nothing is bet."""

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


class PooledMeans:
    """Running means per stratum. Each begins at the mean of all strata, so that one that is new surprises nobody."""

    __slots__ = ("_all", "_sums")

    def __init__(self, prior: float) -> None:
        self._all = (prior, 1.0)
        self._sums: dict[str, tuple[float, float]] = {}

    def mean(self, stratum: str) -> float:
        total, count = self._sums.get(self._key(stratum), (0.0, 0.0))
        return (self.overall + total) / (1.0 + count)

    @property
    def overall(self) -> float:
        total, count = self._all
        return total / count

    @property
    def count(self) -> float:
        """Outcomes of all strata, the prior one included."""
        return self._all[1]

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest mean that any unit may be compared with, of a stratum that is new or known."""
        overall = self.overall
        low = high = overall
        for total, count in self._sums.values():
            mean = (overall + total) / (1.0 + count)
            low, high = min(low, mean), max(high, mean)
        return low, high

    def add(self, stratum: str, value: float, weight: float = 1.0) -> None:
        key = self._key(stratum)
        total, count = self._sums.get(key, (0.0, 0.0))
        self._sums[key] = (total + weight * value, count + weight)
        total, count = self._all
        self._all = (total + weight * value, count + weight)

    def _key(self, stratum: str) -> str:
        return stratum if stratum in self._sums or len(self._sums) < MAX_STRATA else OTHER


@dataclass(frozen=True, slots=True)
class Contrast:
    """An unbiased estimate `x` of candidate minus primary from one unit; it lies in [−loss, gain]."""

    x: float
    loss: float
    gain: float
    caution: float
    """The factor, at least 1, by which to bet less because m rests on few outcomes."""


def contrast(
    y: float | None,
    m: float,
    extremes: tuple[float, float],
    share: float,
    *,
    is_candidate: bool,
    caution: float = 1.0,
    weight: float = 1.0,
) -> Contrast:
    """`y` in [0, 1], of which `weight` was measured. What was not (all of it, where `y` is None) counts as the expected
    value m: that is no evidence, while leaving the unit out would select units by their outcome. `extremes`: the
    lowest and the highest value that any unit may be compared with."""
    (low, high), rest = extremes, 1.0 - share
    surprise = 0.0 if y is None else weight * (y - m)
    return Contrast(
        x=surprise / share if is_candidate else -surprise / rest,
        loss=max(high / share, (1.0 - low) / rest),
        gain=max((1.0 - low) / share, high / rest),
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

    def __init__(self, tolerance: float, *, pooled: bool = True) -> None:
        """`pooled`: one bound for all strata; false in plans of rule 1."""
        self._tolerance = tolerance
        self._means: PooledMeans | StratumMeans = PooledMeans(prior=0.5) if pooled else StratumMeans(prior=0.5)
        self.harm = BettingProcess()
        self.mean = EffectMean()
        """Candidate minus primary; it decides nothing here."""

    def observe(
        self, y: float | None, *, is_candidate: bool, share: float, stratum: str, weight: float = 1.0
    ) -> Contrast:
        """The next unit in the order of assignment. Returns what it was worth."""
        unit = self._contrast(y, is_candidate=is_candidate, share=share, stratum=stratum, weight=weight)
        self._bet(unit)
        self.mean.add(unit, share)
        if y is not None:
            self._means.add(stratum, y, weight)
        return unit

    def _contrast(self, y: float | None, *, is_candidate: bool, share: float, stratum: str, weight: float) -> Contrast:
        means, m = self._means, self._means.mean(stratum)
        if isinstance(means, StratumMeans):
            caution = 1.0 + CAUTION / means.count(stratum)
            return contrast(y, m, (m, m), share, is_candidate=is_candidate, caution=caution, weight=weight)
        caution = 1.0 + CAUTION / means.count
        return contrast(y, m, means.extremes, share, is_candidate=is_candidate, caution=caution, weight=weight)

    def _bet(self, unit: Contrast) -> None:
        self.harm.bet(-unit.x - self._tolerance, (unit.gain + self._tolerance) * unit.caution)


class EffectTest(HarmTest):
    """Adds to the harm test the e-process against "the candidate is better by at most `margin`".

    A negative margin makes it a test of non-inferiority: "worse by at least −margin" is what it refutes.
    """

    def __init__(self, *, margin: float, tolerance: float, pooled: bool = True) -> None:
        super().__init__(tolerance, pooled=pooled)
        self._margin = margin
        self.gain = BettingProcess()

    def _bet(self, unit: Contrast) -> None:
        super()._bet(unit)
        self.gain.bet(unit.x - self._margin, (unit.loss + self._margin) * unit.caution)


class SizeTest:
    """Compares means of a size without an upper limit (tokens, seconds): that of the candidate and of the primary.

    A size counts as Z = min(size, 8c)/8c, where c is the mean of the primary's earlier sizes. With a factor F the
    contrast

        x = F·(Z − m)/(1 − p)  if the primary answered,  −(Z − F·m)/p  if the candidate did

    has E[x] = F·E[Z⁰] − E[Z¹], whatever m is; m is the mean of the earlier Z of the stratum. With F the limit, the null
    of `kept` is "the candidate's mean is at least F times the primary's"; with F the tolerance and the sign turned,
    that of `harm` is "at most F times". One bound serves all strata, as in `HarmTest`.

    A tail beyond eight times the usual size is cut off in both arms: of a candidate a twentieth of whose answers are
    endless, the mean counts as 1.35 times the primary's.
    """

    def __init__(self, *, limit: float | None, tolerance: float, usual: float | None = None) -> None:
        """`limit`, `tolerance`: factors of the primary's mean; without a limit only harm is tested.

        `usual`: a mean of the primary's that is known before the first unit; it counts as FIRST_SIZES sizes.
        """
        self._limit = limit
        self._tolerance = tolerance
        self._sizes = (0.0, 0) if usual is None else (usual * FIRST_SIZES, FIRST_SIZES)
        self._measured = False
        self._means = PooledMeans(prior=1.0 / LARGEST_SIZE)
        self._kept = BettingProcess()
        self.harm = BettingProcess()
        self._difference = 0.0
        self._usual = 0.0

    @property
    def kept(self) -> float | None:
        """The e-value for the limit; None where there is none, or where no size was measured in either arm."""
        return self._kept.e if self._limit is not None and self._measured else None

    @property
    def factor(self) -> float:
        """The estimated ratio of the candidate's mean to the primary's; 1 while nothing is known."""
        return max(0.01, 1.0 + self._difference / self._usual) if self._usual > 0.0 else 1.0

    def observe(self, size: float | None, *, is_candidate: bool, share: float, stratum: str) -> None:
        """The next unit in the order of assignment. One without a size is no evidence."""
        total, count = self._sizes
        if size is None:
            return
        self._measured = True
        if not is_candidate:
            self._sizes = (total + size, count + 1)
        if count >= FIRST_SIZES and total > 0.0:
            largest = LARGEST_SIZE * total / count
            self._compare(min(size, largest) / largest, is_candidate, share, stratum)

    def _compare(self, z: float, is_candidate: bool, share: float, stratum: str) -> None:
        m, (low, high), rest = self._means.mean(stratum), self._means.extremes, 1.0 - share
        caution = 1.0 + CAUTION / self._means.count

        def excess(factor: float) -> float:
            """An unbiased estimate of the candidate's mean minus so many times the primary's."""
            return (z - factor * m) / share if is_candidate else -factor * (z - m) / rest

        if (limit := self._limit) is not None:
            self._kept.bet(-excess(limit), max(limit * high / rest, (1.0 - limit * low) / share) * caution)
        most = self._tolerance
        self.harm.bet(excess(most), max(most * high / share, most * (1.0 - low) / rest) * caution)
        weight = share * rest
        self._difference += weight * excess(1.0)
        self._usual += weight * (m if is_candidate else m + (z - m) / rest)
        self._means.add(stratum, z)


class Relative:
    """Puts a size without an upper limit on the scale of the tests: c/(c + size), in (0, 1]. For plans of rule 1.

    It saturates: it compares usual sizes, and not the mean. c is the running mean of the primary's earlier sizes in
    the stratum, so it is known before the unit: a usual answer gives about 0.5, one half as long again 0.4.
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


class RelativeSizeTest:
    """The size test of plans of rule 1: sizes on the scale of `Relative`, where a limit is a loss."""

    def __init__(self, prior: float, *, limit: float | None, tolerance: float) -> None:
        """`limit`: a factor; `tolerance`: a loss on that scale; `prior`: the size that is usual at first."""
        self._relative = Relative(prior)
        margin = None if limit is None else -loss_of(limit)
        self._test = (
            HarmTest(tolerance, pooled=False)
            if margin is None
            else EffectTest(margin=margin, tolerance=tolerance, pooled=False)
        )

    @property
    def kept(self) -> float | None:
        """The e-value for the limit; None where there is none."""
        return self._test.gain.e if isinstance(self._test, EffectTest) else None

    @property
    def harm(self) -> BettingProcess:
        return self._test.harm

    @property
    def factor(self) -> float:
        """The estimated ratio of the candidate's size to the primary's."""
        return factor_of(self._test.mean.value)

    def observe(self, size: float | None, *, is_candidate: bool, share: float, stratum: str) -> None:
        """The next unit in the order of assignment."""
        scaled = self._relative.scale(size, is_candidate=is_candidate, stratum=stratum)
        self._test.observe(scaled, is_candidate=is_candidate, share=share, stratum=stratum)


def loss_of(factor: float) -> float:
    """Return what a size so many times the usual one loses on the scale of `Relative`, where a usual one has 0.5."""
    return 0.5 - 1.0 / (1.0 + factor)


def factor_of(effect: float) -> float:
    """The way back: from candidate minus primary on that scale to how many times as large the candidate's is."""
    effect = max(-0.45, min(0.45, effect))
    return (0.5 - effect) / (0.5 + effect)
