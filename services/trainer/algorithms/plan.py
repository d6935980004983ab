"""The plan of which samples go into which step, made before the first one. Pure: the same seed gives the same plan.

A step's samples are cut into micro-batches of like length by the tokens that memory takes, so that little is padding
also where a few answers are very long; a step has as many as it needs. Answers of one group stay together where their
lengths allow, to share the prompt. A sample without an advantage costs no forward pass: it is left out, and counted in
the step's normaliser, so that the gradient stays the same. No sample is left over: steps of an epoch differ in size by
one sample at most.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

BUCKETS_PER_DOUBLING = 4
"""Lengths within a factor of 1.19 are alike."""

A_MICRO_BATCH = 1 / 32
"""The price of going through the model once more, in full micro-batches."""

Size = tuple[int, int]
"""Tokens of a prompt and of its completion, which are padded apart."""


@dataclass(frozen=True, slots=True)
class TrainingTargets:
    """The weight of each sample and which of them take part; samples are numbered through all groups.

    `used`: the numbers of those that take part, by group. `weights` of every sample, its advantage. `live`: False for
    one whose gradient is zero; it is counted, but not computed.
    """

    used: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    live: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples that go through the model at once, by the numbers of their rows; maybe none, to keep processes in step.

    `rows`: how many rows the tensors have, with masked ones where there are fewer samples. `step_samples` and
    `step_tokens` (sampled ones) are those of the whole step, over all processes, samples without an advantage
    included. `tokens` are those of the samples, `padded` those of the tensors.
    """

    samples: tuple[int, ...]
    rows: int
    step_samples: int
    step_tokens: int
    tokens: int
    padded: int
    is_demonstrations: bool = False
    """All of them, or none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The micro-batches of each step in order; with several processes each takes every nth."""

    steps: tuple[tuple[MicroBatch, ...], ...]
    processes: int

    @property
    def micro_batches(self) -> list[MicroBatch]:
        return [micro_batch for step in self.steps for micro_batch in step]

    @property
    def of_demonstrations(self) -> Plan:
        """The same, marked so."""
        steps = tuple(tuple(replace(part, is_demonstrations=True) for part in step) for step in self.steps)
        return replace(self, steps=steps)

    @property
    def second_part(self) -> int:
        """The number of steps before the samples teach, too; 0 where demonstrations or samples teach alone."""
        shown = sum(step[0].is_demonstrations for step in self.steps)
        return shown if shown < len(self.steps) else 0

    @property
    def fill(self) -> float:
        """Share of the tokens that go through the model which are not padding."""
        parts = self.micro_batches
        return sum(part.tokens for part in parts) / max(1, sum(part.padded for part in parts))


@dataclass(frozen=True, slots=True)
class Batching:
    """`batch`: samples per step, about; `tokens`: through the model at once, padding included, where more than one
    sample is."""

    epochs: int
    batch: int
    tokens: int
    seed: int
    processes: int = 1


def plan_steps(
    targets: TrainingTargets,
    sizes: Sequence[Size],
    how: Batching,
    rollouts: Sequence[Sequence[int]] | None = None,
    counted: Sequence[int] | None = None,
) -> Plan:
    """`rollouts`: which rows of the model each sample takes, one of its own if absent. `sizes` and `counted`, the
    tokens of the completion that were sampled (all if absent), by number of the row, as in the micro-batches.

    Groups are shuffled anew in each epoch, and stay together as far as steps allow; rows of one sample are in one step.
    """
    rows_of = rollouts or [(number,) for number in range(len(sizes))]
    tokens = counted or [completion for _, completion in sizes]
    group_of = {row: index for index, group in enumerate(targets.used) for number in group for row in rows_of[number]}
    rng = random.Random(how.seed)

    def place(number: int) -> tuple[int, ...]:
        prompt, completion = sizes[number]
        return (bucket(prompt + completion), bucket(prompt), group_of[number], completion, number)

    steps = []
    for step in (step for _ in range(how.epochs) for step in _epoch(targets.used, how.batch, rng)):
        live = sorted((row for number in step if targets.live[number] for row in rows_of[number]), key=place)
        of_step = len(step), sum(tokens[row] for number in step for row in rows_of[number])
        groups = [group_of[number] for number in live]
        parts = cut_to_fit([sizes[number] for number in live], how.tokens, how.processes, groups) or [slice(0, 0)]
        steps.append(
            tuple(
                _micro_batch(mine, rows, of_step, sizes)
                for part in parts
                for mine, rows in _dealt(live[part], how.processes)
            )
        )
    return Plan(tuple(steps), how.processes)


def cut_to_fit(
    sizes: Sequence[Size], tokens: int, processes: int = 1, groups: Sequence[int] | None = None
) -> list[slice]:
    """Runs of neighbours, each as long as its share of a process, padded, has no more than so many tokens; or one.

    Of all such cuts that with the fewest padded tokens, where a micro-batch costs as much as a thirty-second of
    `tokens`, and a cut through one of the `groups` as much as its prompt, which is then gone through twice.
    """
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(sizes) + 1):
        prompt = completion = 0
        found = (math.inf, end - 1)
        for start in range(end - 1, -1, -1):
            prompt, completion = max(prompt, sizes[start][0]), max(completion, sizes[start][1])
            padded = math.ceil((end - start) / processes) * (prompt + completion)
            if padded > tokens and start < end - 1:
                break
            again = sizes[start][0] if groups and start and groups[start] == groups[start - 1] else 0
            found = min(found, (best[start][0] + padded + again + tokens * A_MICRO_BATCH, start))
        best.append(found)
    edges = [len(sizes)]
    while edges[-1]:
        edges.append(best[edges[-1]][1])
    return [slice(start, end) for start, end in itertools.pairwise(reversed(edges))]


def _micro_batch(numbers: list[int], rows: int, counted: tuple[int, int], sizes: Sequence[Size]) -> MicroBatch:
    own = [sizes[number] for number in numbers]
    width = sum(max(lengths) for lengths in zip(*own, strict=True))
    return MicroBatch(tuple(numbers), rows, *counted, tokens=sum(map(sum, own)), padded=rows * width)


def _epoch(groups: Sequence[Sequence[int]], batch: int, rng: random.Random) -> list[list[int]]:
    order = list(range(len(groups)))
    rng.shuffle(order)
    samples = [number for index in order for number in groups[index]]
    return _cut(samples, max(1, round(len(samples) / batch)))


def _dealt(items: list[int], processes: int) -> list[tuple[list[int], int]]:
    """Each process's, with its rows: TRL gathers figures row by row, so all processes must have equally many."""
    return [(part, max(1, math.ceil(len(items) / processes))) for part in _cut(items, processes)]


def _cut(items: list[int], parts: int) -> list[list[int]]:
    """Parts that differ in size by one at most; some are empty where there are fewer items than parts."""
    edges = [len(items) * part // parts for part in range(parts + 1)]
    return [items[start:end] for start, end in itertools.pairwise(edges)]


def bucket(length: int) -> int:
    """The same for lengths that are alike."""
    return round(BUCKETS_PER_DOUBLING * math.log2(max(1, length)))
