"""Bounds on a mean of values in [0, 1] that hold at all times at once, in constant memory.

The predictable plug-in empirical-Bernstein confidence sequence (Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting", JRSS B 86, 2024, theorem 2): with λₜ fixed before the t-th value,

    Σλx / Σλ ± (log(1/α) + Σ 4(xₜ − μ̂ₜ₋₁)²·ψ(λₜ)) / Σλ,  ψ(λ) = (−log(1 − λ) − λ)/4,

each end with probability 1 − α. The mean is taken for constant given the past: a traffic that changes is not covered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALPHA = 0.025
"""Of each end."""
LARGEST_BET = 0.5


@dataclass(slots=True)
class MeanBounds:
    """All that is kept; may be written down and taken up again."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    """Of each value's distance to the mean up to it."""
    weight: float = 0.0
    weighted: float = 0.0
    spread: float = 0.0

    def observe(self, value: float) -> None:
        before = (0.5 + self.total) / (1 + self.count)
        variance = (0.25 + self.squares) / (1 + self.count)
        bet = self._bet(variance, self.count + 1)
        self.count += 1
        self.total += value
        self.squares += (value - (0.5 + self.total) / (1 + self.count)) ** 2
        self.weight += bet
        self.weighted += bet * value
        self.spread += (value - before) ** 2 * (-math.log1p(-bet) - bet)

    @property
    def lower(self) -> float:
        return max(0.0, self.weighted / self.weight - self._half_width) if self.count else 0.0

    @property
    def upper(self) -> float:
        return min(1.0, self.weighted / self.weight + self._half_width) if self.count else 1.0

    @property
    def _half_width(self) -> float:
        return (math.log(1 / ALPHA) + self.spread) / self.weight

    @staticmethod
    def _bet(variance: float, number: int) -> float:
        """`number` counts from 1."""
        best = math.sqrt(2 * math.log(1 / ALPHA) / (variance * number * math.log1p(number)))
        return min(LARGEST_BET, best)
