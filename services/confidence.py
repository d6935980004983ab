"""An anytime-valid band for the effect on the score: each end holds at all times at once with probability 1 − α.

The betting process of services/effect.py, run against "the effect is at most δ" for every δ on a grid, refutes the δ
whose e-value has reached 1/α; what is left is a confidence sequence (Waudby-Smith and Ramdas 2024, section 4). The
payoff (x − δ)/(loss + δ) falls with δ, so refuting one δ refutes all below it: the largest refuted one is the lower
end. At α = 1/20 it passes 0 when the e-value for "better" passes 20, so picture and verdict tell the same story. The
upper end is the same on −x. The band draws the picture and decides nothing; it takes the effect for constant.

It is computed when asked for, from the kept contrasts: some 100 µs a unit, which a fleet under load need not pay.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from schemas.evidence import Band
from services.effect import Contrast
from services.evidence import BettingProcess

FIELDS = 5
"""Numbers kept of each unit."""

LOG_REFUTED = 2.995732273553991
"""log 20: α = 1/20 at each end, so 1/10 for both."""

GRID = (
    *(-1.0, -0.9, -0.8, -0.7, -0.6, -0.5, -0.45, -0.4, -0.35),
    *(step / 100 for step in range(-30, 31)),
    *(0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
)
"""Effects that are tested: the band's ends lie on them, rounded outwards."""


class LowerEnd:
    """The lower end of the band, never falling between the moments it is read."""

    def __init__(self) -> None:
        self._open = [(delta, BettingProcess()) for delta in GRID[1:]]
        self._value = GRID[0]

    def observe(self, x: float, loss: float, caution: float) -> None:
        """`x` is at least −`loss`."""
        for delta, process in self._open:
            process.bet(x - delta, (loss + delta) * caution)

    def read(self) -> float:
        refuted = [delta for delta, process in self._open if process.log_e >= LOG_REFUTED]
        if refuted:
            self._value = refuted[-1]
            self._open = [(delta, process) for delta, process in self._open if delta > self._value]
        return self._value


class EffectBand:
    """Estimate and band from the contrasts of one metric; 40 bytes a unit."""

    def __init__(self) -> None:
        self._kept = array("d")
        self._weighted = 0.0
        self._weight = 0.0

    def observe(self, unit: Contrast, *, share: float) -> None:
        """`share` weighs it: at a small share one contrast says little."""
        self._weighted += share * (1.0 - share) * unit.x
        self._weight += share * (1.0 - share)
        effect = max(-1.0, min(1.0, self._weighted / self._weight))
        self._kept.extend((unit.x, unit.loss, unit.gain, unit.caution, effect))

    def course(self, counts: Sequence[int]) -> list[Band]:
        """The band after so many units each; `counts` go up."""
        low, high, seen = LowerEnd(), LowerEnd(), 0
        bands = []
        for count in counts:
            for index in range(seen, count):
                x, loss, gain, caution, _ = self._unit(index)
                low.observe(x, loss, caution)
                high.observe(-x, gain, caution)
            seen = count
            bands.append(Band(effect=self._effect(count), low=low.read(), high=-high.read()))
        return bands

    def _unit(self, index: int) -> array[float]:
        return self._kept[FIELDS * index : FIELDS * (index + 1)]

    def _effect(self, count: int) -> float:
        return self._kept[FIELDS * count - 1] if count else 0.0
