"""The noise of a scorer: how far its scores of one and the same answer lie apart, measured on the log itself. Pure.

A group often holds an answer twice; where the scores of equal answers differ, that is the scorer's noise and nothing
else. A deterministic scorer has none.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence


class ScoreNoise:
    """Pooled within-answer standard deviation, per scorer: sqrt(sum of squares / degrees of freedom)."""

    def __init__(self) -> None:
        self._squares: dict[int, float] = defaultdict(float)
        self._freedom: Counter[int] = Counter()

    def add(self, scorer: int, scored: Sequence[tuple[int, float]]) -> None:
        """The samples of one group: a hash of each answer, and its score."""
        by_answer: dict[int, list[float]] = defaultdict(list)
        for answer, score in scored:
            by_answer[answer].append(score)
        for scores in by_answer.values():
            mean = math.fsum(scores) / len(scores)
            self._squares[scorer] += math.fsum((score - mean) ** 2 for score in scores)
            self._freedom[scorer] += len(scores) - 1

    def deviation(self, scorer: int) -> float:
        """0 where no answer was scored twice."""
        return math.sqrt(self._squares[scorer] / self._freedom[scorer]) if self._freedom[scorer] else 0.0
