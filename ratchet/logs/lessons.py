"""Tells whether a logged answer can teach, as far as its line says, and which samples it is compared with. Pure.

They are all samples of its group, or those of its program: a program is what the model was asked in, as the task is:
none of the policy's choosing. That one of two programs scores better by the same model says nothing about its tokens.

The trainer leaves out more, which takes the whole window to know: groups that are equal or not whole, other versions,
scorers and temperatures (services/trainer/data).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import pvariance
from typing import Literal

from ratchet.logs.best_answer import NOT_THERE, is_censored
from ratchet.logs.names import is_own
from ratchet.logs.rows import SamplingRow
from schemas.records.interaction import Interaction


def teaches_nothing(line: Interaction) -> str | None:
    """Return why no training learns from it, as a clause; None where one may."""
    sampling = line.sampling
    if line.sample is None:
        return "there is no answer"
    if is_own(line.arm.experiment_id):
        return "it is a task of the fleet's own, golden, an anchor or an evaluation"
    if line.kept_apart:
        return "its asker, or its tenant, keeps it from teaching"
    if line.status == "cancelled":
        return "its task was cancelled"
    if is_censored(line.select):
        return "of first-passing it depends on the scores which answers were made"
    if line.sample_status in NOT_THERE:
        return "it was lost by a failure of ours" if line.sample_status == "lost" else "it was called off"
    if SamplingRow(sampling.temperature, sampling.top_p, sampling.top_k).filtered:
        return "with temperature 0, top_p or top_k it was not the policy's own choice"
    if not line.sampled_tokens:
        return "there are no tokens of it"
    return None


Baseline = Literal["program", "group"]
"""`program`: a sample is compared with its program's own in the group; `group`: with all of them."""
DEFAULT_BASELINE: Baseline = "program"
"""The baseline of trainings that name none; what brings a training goes by it, too."""
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
