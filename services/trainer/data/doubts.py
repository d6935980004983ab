"""Decides which demonstrations look wrong: those that the policy finds far unlikelier than it finds the others. Pure.

A reference that is of the right form but wrong earns full marks, for it is compared with itself. A policy that can do
a part of the job finds it unlikely all the same, before it has learned from any of them. After some steps on all of
them it would have begun to learn the wrong ones, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

DEVIATIONS = 6.0
AT_LEAST_NATS = 3.0
OF_A_NORMAL = 1.4826
"""A standard deviation over the median distance from the median."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """`loss` of the whole text, in nats."""

    task_id: str
    loss: float


def doubtful(losses: Sequence[float]) -> list[int]:
    """The numbers of those far above the others, the worst first. `losses`: of whole texts, in nats."""
    if not losses:
        return []
    middle = median(losses)
    distance = OF_A_NORMAL * median(abs(loss - middle) for loss in losses)
    limit = middle + max(AT_LEAST_NATS, DEVIATIONS * distance)
    return sorted((number for number, loss in enumerate(losses) if loss > limit), key=lambda number: -losses[number])
