"""An anytime-valid band for the effect on the score: each end holds at all times at once with probability 1 − α.

The betting process of effect.py, run against "the effect is at most δ" for every δ on a grid, refutes the δ
whose e-value has reached 1/α; what is left is a confidence sequence (Waudby-Smith and Ramdas 2024, section 4). The
payoff (x − δ)/(loss + δ) falls with δ, so refuting one δ refutes all below it: the largest refuted one is the lower
end. With the plan's α it passes 0 when the e-value for "better" passes 1/α, so band and verdict agree. The upper end is
the same on −x. The band is drawn and decides nothing; it takes the effect for constant.

It is computed when asked for, from the kept contrasts: some tens of microseconds a unit, which a fleet under load
need not pay.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence

from ratchet.experiments.e_process import BettingProcess
from ratchet.experiments.effect import Contrast
from schemas.records.evidence import Band

GRID = (
    *(-1.0, -0.9, -0.8, -0.7, -0.6, -0.5, -0.45, -0.4, -0.35),
    *(step / 100 for step in range(-30, 31)),
    *(0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
)
"""Effects that are tested: the band's ends lie on them, rounded outwards."""


Bet = tuple[float, float, float]
"""One unit: its contrast, the largest loss, and the caution; mirrored for the upper end."""


def refuted_after(bets: Sequence[Bet], delta: float, log_refuted: float) -> int | None:
    """Return after how many units "the effect is at most `delta`" is refuted; None if it stands."""
    process = BettingProcess()
    for count, (x, loss, caution) in enumerate(bets, start=1):
        process.bet(x - delta, (loss + delta) * caution)
        if process.log_e >= log_refuted:
            return count
    return None


def lower_ends(bets: Sequence[Bet], log_refuted: float) -> tuple[list[int], list[float]]:
    """Counts of units and the lower end from each on; both go up. Costs one pass for each end that was reached."""
    counts, ends = [0], [GRID[0]]
    for delta in GRID[1:]:
        if (count := refuted_after(bets, delta, log_refuted)) is None:
            break
        counts.append(count)
        ends.append(delta)
    return counts, ends


class EffectBand:
    """Estimate and band from the contrasts of one metric; each end at `alpha`. 40 bytes a unit."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._kept = array("d")
        self._weighted = 0.0
        self._weight = 0.0

    def observe(self, unit: Contrast, *, share: float) -> None:
        """`share` weighs it: at a small share one contrast says little."""
        self._weighted += share * (1.0 - share) * unit.x
        self._weight += share * (1.0 - share)
        effect = max(-1.0, min(1.0, self._weighted / self._weight))
        self._kept.extend((unit.x, unit.loss, unit.gain, unit.caution, effect))

    def copy(self) -> EffectBand:
        twin = EffectBand(self._alpha)
        twin._kept, twin._weighted, twin._weight = self._kept[:], self._weighted, self._weight
        return twin

    def after(self, counts: Sequence[int]) -> list[Band]:
        """The band after so many units each."""
        fields = iter(self._kept)
        units = list(zip(fields, fields, fields, fields, fields, strict=True))
        log_refuted = math.log(1.0 / self._alpha)
        low_from, lows = lower_ends([(x, loss, caution) for x, loss, _, caution, _ in units], log_refuted)
        high_from, highs = lower_ends([(-x, gain, caution) for x, _, gain, caution, _ in units], log_refuted)
        return [
            Band(
                effect=units[count - 1][-1] if count else 0.0,
                low=lows[bisect_right(low_from, count) - 1],
                high=-highs[bisect_right(high_from, count) - 1],
            )
            for count in counts
        ]
