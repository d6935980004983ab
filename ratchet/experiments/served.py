"""The quality of what users are served: the best of a group of answers, beside a single one, by version. Pure.

A task is one observation: its served score is that of the answer its user got, which is the best one's where the task
does not choose otherwise (ratchet/logs/best_answer.py); its single score the mean over its answers, which is
what one answer drawn from the group scores in expectation. The served answer is chosen by the same scores that measure
it, so a noisy scorer flatters it; single scores are not flattered. Intervals are normal approximations at 95 %.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.api.status import Interval

Z95 = 1.959964
JUDGED = re.compile(r"(?:^|[\s*])(judge|likelihood)\b")
"""A scorer's id that names a model as one of its parts; what a function of the user's asks is not known here."""


def unaudited_judge(scorer: str | None, *, audited: bool) -> str | None:
    """A sentence that says what to set; None where there is an auditor, or no judge. `scorer`: the id in the log."""
    if audited or scorer is None or (found := JUDGED.search(scorer)) is None:
        return None
    return (
        f"nobody would notice a fooled judge: the scores are a model's ({found[1]}), and no auditor looks at them; set "
        f"RATCHET_AUDITOR (ratchet up --auditor verifier:exact)"
    )


@dataclass(slots=True)
class Mean:
    """Welford's running mean and variance."""

    count: int = 0
    mean: float = 0.0
    _squares: float = 0.0

    @classmethod
    def of_sums(cls, count: int, total: float, squares: float) -> Mean:
        """Return the mean of values whose sum, and sum of squares, these are."""
        mean = total / count if count else 0.0
        return cls(count, mean, max(0.0, squares - total * mean))

    def add(self, value: float) -> None:
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self._squares += before * (value - self.mean)

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None below two values."""
        return math.sqrt(self._squares / (self.count - 1) / self.count) if self.count > 1 else None

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % confidence interval around the mean (normal approximation)."""
        return None if self.error is None else Z95 * self.error

    def interval(self) -> Interval:
        """Return the mean with its 95 % interval, whose ends are None below two values."""
        half = self.half_width
        low, high = (None, None) if half is None else (self.mean - half, self.mean + half)
        return Interval(tasks=self.count, mean=self.mean, low=low, high=high)

    def data(self) -> dict[str, float | None]:
        return {"tasks": self.count, "mean": self.mean, "half_width": self.half_width}


@dataclass(slots=True)
class Quality:
    """The quality of one version. `distinct`: different answers in a group, over groups of more than one."""

    served: Mean = field(default_factory=Mean)
    single: Mean = field(default_factory=Mean)
    distinct: Mean = field(default_factory=Mean)

    def observe(self, scores: Sequence[float | None], answers: Sequence[str | None], served: float | None) -> None:
        """One task's group; `served` is the score of the answer the user got.

        One without any score, such as a task that failed, tells nothing here.
        """
        known = [score for score in scores if score is not None]
        if not known:
            return
        if served is not None:
            self.served.add(served)
        self.single.add(math.fsum(known) / len(known))
        if len(answers) > 1:
            self.distinct.add(len(set(answers)))

    def data(self) -> dict[str, dict[str, float | None]]:
        return {"served": self.served.data(), "single": self.single.data(), "distinct": self.distinct.data()}


def best_of(scores: Sequence[float], count: int, worth: Sequence[float] | None = None) -> float:
    """Return what the best-scored of `count` answers is worth, by default its score, expected over all draws of so
    many.

    Drawn without replacement: unbiased for a group of that size. The i-th lowest of n is the best of a draw with
    probability C(i − 1, count − 1) / C(n, count). `count` ≤ n.
    """
    values, draws = scores if worth is None else worth, math.comb(len(scores), count)
    order = sorted(range(len(scores)), key=lambda index: scores[index])
    return math.fsum(values[index] * math.comb(place, count - 1) for place, index in enumerate(order)) / draws
