"""Group-relative advantages: how much better an answer is than the other answers to the same task. Pure.

Groups may be of any size from two on. No value network, no baseline across tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

EPSILON = 1e-4
"""TRL's own: it keeps a tiny spread from being blown up to a large advantage."""

Scale = Literal["group", "none"]


def advantages_among(scores: Sequence[float], sets: Sequence[Sequence[int]], scale: Scale) -> list[float]:
    """The advantages of a group in which only the samples of one set are compared, as if each set were a group.

    One that is alone in its set has none: 0. `sets` hold the number of each score once (ratchet/logs/groups.py).
    """
    found = [0.0] * len(scores)
    for numbers in (one for one in sets if len(one) > 1):
        own = group_advantages([scores[number] for number in numbers], scale)
        for number, advantage in zip(numbers, own, strict=True):
            found[number] = advantage
    return found


def group_advantages(scores: Sequence[float], scale: Scale) -> list[float]:
    """score - mean, and with scale "group" over (standard deviation + 1e-4), the deviation with Bessel's correction.

    Formula (1) of GRPO (Shao et al. 2024) as TRL 1.16 computes it; "none" is Dr. GRPO (Liu et al. 2025). Raises
    ValueError for fewer than two scores, of which none is better.
    """
    if len(scores) < 2:
        raise ValueError(f"a group of {len(scores)} has nothing to compare")
    mean = math.fsum(scores) / len(scores)
    centred = [score - mean for score in scores]
    if scale == "none":
        return centred
    deviation = math.sqrt(math.fsum(value * value for value in centred) / (len(scores) - 1))
    return [value / (deviation + EPSILON) for value in centred]


def temper(advantages: Sequence[float], negative_weight: float) -> list[float]:
    """Advantages with the negative ones times `negative_weight`, in [0, 1].

    For several steps on logged answers: after the first, a policy no longer writes the answers it is pushed away from,
    so nothing says where the probability it takes from them goes (Arnal et al. 2025, arXiv:2506.20520).
    """
    return [advantage if advantage > 0 else advantage * negative_weight for advantage in advantages]
