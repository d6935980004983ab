"""Which samples go into which step, laid down before the first one. Pure: the same seed gives the same plan.

A step's samples are cut into micro-batches, groups of similar length together, to pad little and to share prompts. A
sample without an advantage costs no forward pass: it is left out, and counted in the step's normaliser, so that the
gradient stays the same. No sample is left over: steps of an epoch differ in size by one sample at most.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingTargets:
    """What is to be learned from each sample; samples are numbered through all groups.

    `used`: the numbers of those that take part, by group. `weights` of every sample, its advantage. `live`: False for
    one whose gradient is zero; it is counted, but not computed.
    """

    used: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    live: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples that go through the model at once, by number; maybe none, to keep processes in step.

    `rows`: how many rows the tensors have, with masked ones where there are fewer samples. `step_samples` and
    `step_tokens` (of completions) are those of the whole step, over all processes, samples without an advantage
    included.
    """

    samples: tuple[int, ...]
    rows: int
    step_samples: int
    step_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`micro_batches` in order, `per_step` of them make a step; with several processes each takes every nth."""

    micro_batches: tuple[MicroBatch, ...]
    per_step: int
    processes: int

    @property
    def steps(self) -> int:
        return len(self.micro_batches) // self.per_step

    @property
    def accumulation(self) -> int:
        """Micro-batches of one step in one process."""
        return self.per_step // self.processes


@dataclass(frozen=True, slots=True)
class Batching:
    """`batch`: samples per step, about; `micro_batch`: samples through the model at once, at most."""

    epochs: int
    batch: int
    micro_batch: int
    seed: int
    processes: int = 1


def plan_steps(targets: TrainingTargets, tokens: Sequence[int], how: Batching) -> Plan:
    """`tokens` of completions, by number of the sample.

    Groups are shuffled anew in each epoch, and stay together as far as steps allow.
    """
    groups, live = targets.used, targets.live
    rng = random.Random(how.seed)
    steps = [step for _ in range(how.epochs) for step in _epoch(groups, how.batch, rng)]
    group_of = {number: index for index, group in enumerate(groups) for number in group}
    longest = [max(tokens[number] for number in group) for group in groups]
    kept = [
        sorted((n for n in step if live[n]), key=lambda n: (longest[group_of[n]], group_of[n], tokens[n], n))
        for step in steps
    ]
    per_process = math.ceil(max(map(len, kept)) / (how.micro_batch * how.processes))
    per_step = max(1, per_process) * how.processes
    micro_batches = [
        MicroBatch(tuple(part), rows, len(step), sum(tokens[number] for number in step))
        for step, live_ones in zip(steps, kept, strict=True)
        for part, rows in _parts(live_ones, per_step, how.processes)
    ]
    return Plan(tuple(micro_batches), per_step, how.processes)


def _epoch(groups: Sequence[Sequence[int]], batch: int, rng: random.Random) -> list[list[int]]:
    order = list(range(len(groups)))
    rng.shuffle(order)
    samples = [number for index in order for number in groups[index]]
    return _cut(samples, max(1, round(len(samples) / batch)))


def _parts(items: list[int], count: int, processes: int) -> list[tuple[list[int], int]]:
    """Each with its rows: TRL gathers figures row by row, so all processes must have equally many."""
    parts = _cut(items, count)
    most = max(map(len, parts))
    return [(part, max(1, len(part) if processes == 1 else most)) for part in parts]


def _cut(items: list[int], parts: int) -> list[list[int]]:
    """Parts that differ in size by one at most; some are empty where there are fewer items than parts."""
    edges = [len(items) * part // parts for part in range(parts + 1)]
    return [items[start:end] for start, end in itertools.pairwise(edges)]
