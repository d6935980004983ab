"""Finds the samples of a group that are compared with one another: all of them, or those of one program each. Pure.

A program is what the model was asked in, as the task is: none of the policy's choosing. That one of two programs scores
better than the other by the same model says nothing about the model's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import pvariance
from typing import Literal

Baseline = Literal["program", "group"]
"""`program`: a sample is compared with its program's own in the group; `group`: with all of them."""
DEFAULT_BASELINE: Baseline = "program"
"""Of trainings that name none; what brings a training goes by it, too."""
ZERO_SPREAD = 1e-9


def peers(programs: Sequence[str | None], baseline: Baseline) -> list[list[int]]:
    """The numbers of the samples that have a baseline in common, those of the first program first."""
    together: dict[str | None, list[int]] = {}
    for number, program in enumerate(programs):
        together.setdefault(program if baseline == "program" else None, []).append(number)
    return list(together.values())


def widest_range(scores: Sequence[float], sets: Sequence[Sequence[int]]) -> float:
    """Among the samples of one of the sets; 0 where each has a single one."""
    return max((max(found) - min(found) for found in _of(scores, sets)), default=0.0)


def are_level(scores: Sequence[float], programs: Sequence[str | None], baseline: Baseline) -> bool:
    """Tell whether no sample scores otherwise than those it is compared with: nothing is to be learned by comparing
    them."""
    return widest_range(scores, peers(programs, baseline)) <= ZERO_SPREAD


def deviation(scores: Sequence[float], sets: Sequence[Sequence[int]]) -> float:
    """Standard deviation of the scores from the mean of their own set, over all of them."""
    found = _of(scores, sets)
    return math.sqrt(math.fsum(len(one) * pvariance(one) for one in found) / sum(map(len, found)))


def _of(scores: Sequence[float], sets: Sequence[Sequence[int]]) -> list[list[float]]:
    return [[scores[number] for number in numbers] for numbers in sets]
