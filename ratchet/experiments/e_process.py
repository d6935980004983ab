"""Evidence that may be tested after every unit: betting e-processes, in constant time and memory per unit.

An e-process is a non-negative process whose expectation, at any stopping time, is at most 1 while its null hypothesis
holds. By Ville's inequality it ever reaches 1/α with probability at most α, however often it is tested. Here it is
wealth: start with 1 and, before each unit, stake the fraction f of it on the null being wrong. A fair or losing bet
makes nobody rich. (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024,
arXiv:2010.09686, section 4; Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", 2023.)

What is bet on (the effect of an adapter, the lengths of its answers) is in ratchet/experiments/effect.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

LARGEST = 1e300
"""Stands for every e-value above it: JSON knows no infinity."""

FRACTIONS = (0.03, 0.1, 0.3, 0.6, 0.95)
WEIGHTS = (1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 2)
"""Fractions staked, and the share of the starting wealth that bets each. Any below 1 are valid; these were chosen by
simulation: half of the wealth on the largest stops a disaster early, the small ones find small effects in noise."""

TILTS = (0.25, 0.5, 0.8, 1.25, 2.0, 4.0)
"""Factors on the odds of the candidate that the sample-ratio check looks for."""


def e_value(log_e: float) -> float:
    return min(math.exp(min(log_e, 700.0)), LARGEST)


def log_mean(logs: Sequence[float], weights: Sequence[float]) -> float:
    """log Σ wᵢ·exp(lᵢ) without overflow. The weights are positive and sum to 1."""
    top = max(logs)
    total = 0.0
    for log, weight in zip(logs, weights, strict=True):
        total += weight * math.exp(log - top)
    return top + math.log(total)


@dataclass(slots=True)
class BettingProcess:
    """Tests "the payoff's expectation, given the past, is at most 0": E = Σ_f w_f · Π (1 + f·payoff/bound).

    Each factor is at least 1 − f > 0, and its conditional expectation is at most 1 under the null because f and bound
    are fixed before the unit: each product is a supermartingale, and so is their weighted mean. May be written down.
    """

    _log_wealth: list[float] = field(default_factory=lambda: [0.0] * len(FRACTIONS))
    _log_e: float | None = 0.0

    def bet(self, payoff: float, bound: float) -> None:
        """`bound` > 0 is known before the unit's arm and outcome, and no payoff can be below −bound."""
        ratio = max(payoff / bound, -1.0)
        self._log_wealth = [
            log + math.log1p(fraction * ratio) for log, fraction in zip(self._log_wealth, FRACTIONS, strict=True)
        ]
        self._log_e = None

    @property
    def log_e(self) -> float:
        if self._log_e is None:
            self._log_e = log_mean(self._log_wealth, WEIGHTS)
        return self._log_e

    @property
    def e(self) -> float:
        return e_value(self.log_e)


class SampleRatioCheck:
    """Tests "each unit went to the candidate with the probability it was logged with".

    The e-value is a mean of likelihood ratios against odds θ times as large; each factor θᴬ/(1 − p + pθ) has
    expectation exactly 1 under the null. (Lindon and Malek, "Anytime-valid inference for multinomial counts", 2022.)
    """

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs = [0.0] * len(TILTS)

    def observe(self, *, is_candidate: bool, share: float) -> None:
        for index, tilt in enumerate(TILTS):
            likelihood = tilt if is_candidate else 1.0
            self._logs[index] += math.log(likelihood / (1.0 - share + share * tilt))

    @property
    def log_e(self) -> float:
        return log_mean(self._logs, (1 / len(TILTS),) * len(TILTS))

    @property
    def e(self) -> float:
        return e_value(self.log_e)
