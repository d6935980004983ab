"""From lines to groups: the lines of one task, each sample once, in the order of its samples.

Lines of several tasks may stand among each other. A kill may have cut a group short, or had a sample logged twice: then
its first line counts. A line without a sample is a group of its own, and ends what was begun of its task.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import pvariance
from typing import Generic, Literal, Protocol, TypeVar

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


class Sampled(Protocol):
    """A line of the log of interactions, or a view of one."""

    @property
    def task_id(self) -> str: ...
    @property
    def sample(self) -> int | None: ...
    @property
    def group_size(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Line = TypeVar("Line")
Row = TypeVar("Row", bound=Sampled)


class Groups(Generic[Key, Line]):
    """Memory: the groups that are not whole yet."""

    def __init__(self) -> None:
        self._open: dict[Key, dict[int, Line]] = {}

    def add(self, key: Key, sample: int | None, size: int, line: Line) -> list[Line] | None:
        """The group that this line makes whole, if it does."""
        if sample is None:
            self._open.pop(key, None)
            return [line]
        group = self._open.setdefault(key, {})
        group.setdefault(sample, line)
        if len(group) < size:
            return None
        del self._open[key]
        return [group[index] for index in sorted(group)]

    def begun_samples(self, key: Key) -> Mapping[int, Line]:
        """The samples there are of a group that is not whole."""
        return self._open.get(key, {})

    def rest(self) -> Iterator[tuple[Key, list[Line]]]:
        """Those that are not whole."""
        return ((key, [group[index] for index in sorted(group)]) for key, group in self._open.items())


def group_by_task(rows: Iterable[Row], *, incomplete: bool = False) -> Iterator[list[Row]]:
    """Each task's, as soon as it is whole; with `incomplete`, in the end those that never were."""
    groups = Groups[str, Row]()
    for row in rows:
        if (group := groups.add(row.task_id, row.sample, row.group_size, row)) is not None:
            yield group
    if incomplete:
        yield from (group for _, group in groups.rest())
