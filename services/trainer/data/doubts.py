"""Which demonstrations look wrong: those that a policy that learned from all of them still finds unlikely. Pure.

A reference that is of the right form but wrong earns full marks, for it is compared with itself. What is wrong does not
follow from its prompt as the others do, so it is learned last. Nothing is left out for it: people look.
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
