"""The cells that are run and kept: a file for each, so that a comparison can be made in pieces.

Seeds of the tuning and of the result are apart. Light: torch is imported where a cell is run.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.learning.models import BASES
from ratchet.files.atomic_file import replace_file

SHOWN = ("references", "references-then-grpo")
"""Learn from the right answers to the tasks: alone, or first and from the model's own samples after them."""
LEARNERS = ("grpo", "weighted-sft", "best-of-group-sft", "kto", *SHOWN)
HELD_OUT = "grpo-held-out"
"""GRPO as the trainer does it with 64 groups or more: some are held out, and it ends when it gains no more by them."""
BESIDES = (HELD_OUT, *(f"{name}-10-wrong" for name in SHOWN))
"""Only where asked for by name. `-10-wrong`: a tenth of the references are another task's."""
JUDGEMENTS = ("sharp", "rough")
GRID_SIZE = 4
TUNING_SEEDS = (100,)
TUNING_ROUNDS = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """`point`: of the learner's grid."""

    phase: str
    base: str
    judgement: str
    learner: str
    seed: int
    point: int
    rounds: int

    @property
    def name(self) -> str:
        numbers = f"seed{self.seed}-point{self.point}-rounds{self.rounds}"
        return f"{self.phase}-{self.base}-{self.judgement}-{self.learner}-{numbers}"


@dataclass(frozen=True, slots=True)
class Lesson:
    """The held-out score before and after each round, and the CPU-seconds of each."""

    cell: Cell
    scores: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean score over the rounds (area under the learning curve), so that all numbers of samples count."""
        return statistics.fmean(self.scores[1:])


class Store:
    """The folder of what was run."""

    def __init__(self, folder: Path) -> None:
        self.models = folder / "models"
        self._cells = folder / "cells"

    def find(self, cell: Cell) -> Lesson | None:
        try:
            kept: dict[str, Any] = json.loads((self._cells / f"{cell.name}.json").read_text())
        except FileNotFoundError:
            return None
        return Lesson(Cell(**kept["cell"]), tuple(kept["scores"]), tuple(kept["seconds"]))

    def keep(self, lesson: Lesson) -> None:
        self._cells.mkdir(parents=True, exist_ok=True)
        replace_file(self._cells / f"{lesson.cell.name}.json", json.dumps(asdict(lesson), indent=1).encode())


def tuning_cells(learners: Sequence[str]) -> list[Cell]:
    """The cells of each learner at each point of its grid; on sound references only."""
    tuned = dict.fromkeys(map(tuned_as, learners))
    places = itertools.product(BASES, JUDGEMENTS, TUNING_SEEDS, tuned, range(GRID_SIZE))
    return [
        Cell("tuning", base, judgement, learner, seed, point, TUNING_ROUNDS)
        for base, judgement, seed, learner, point in places
    ]


def result_cells(learners: Sequence[str], seeds: int, rounds: int, points: dict[tuple[str, str], int]) -> list[Cell]:
    """The cells at the best point of each learner with each judge."""
    places = itertools.product(range(seeds), BASES, JUDGEMENTS, learners)
    return [
        Cell("result", base, judgement, learner, seed, points[judgement, tuned_as(learner)], rounds)
        for seed, base, judgement, learner in places
    ]


def tuned_as(learner: str) -> str:
    """The learner at whose best point this one is run."""
    if learner == HELD_OUT:
        return "grpo"
    return learner.rsplit("-", 2)[0] if learner.endswith("-wrong") else learner


def share_wrong(learner: str) -> float:
    """The share of the references that are another task's."""
    return int(learner.split("-")[-2]) / 100 if learner.endswith("-wrong") else 0.0


def best_points(tuned: Sequence[Lesson]) -> dict[tuple[str, str], int]:
    """Return the best point of each judgement and learner, by the mean over bases and tuning seeds."""

    def place(lesson: Lesson) -> tuple[str, str]:
        return lesson.cell.judgement, lesson.cell.learner

    found = {}
    for key, own in itertools.groupby(sorted(tuned, key=place), key=place):
        lessons = list(own)
        figures = {
            point: statistics.fmean(one.mean for one in lessons if one.cell.point == point)
            for point in {one.cell.point for one in lessons}
        }
        found[key] = max(figures, key=lambda point: figures[point])
    return found


def run_cell(cell: Cell, models: Path) -> Lesson:
    """Run the cell in this process, on one thread."""
    import torch

    from bench.learning.learners import Round, learn, point_of
    from bench.learning.world import World

    torch.set_num_threads(1)
    world = World(models, cell.base, cell.judgement, cell.seed)
    adapter: Path | None = None
    scores, seconds = [world.held_out_score(None)], []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(cell.rounds):
            began, folder = time.process_time(), Path(scratch) / str(number)
            given = Round(world, models, cell.base, cell.judgement, adapter, number, folder)
            adapter = learn(cell.learner, point_of(cell.learner, cell.point), given)
            seconds.append(time.process_time() - began)
            scores.append(world.held_out_score(adapter))
    return Lesson(cell, tuple(scores), tuple(seconds))


def missing(cells: Sequence[Cell], store: Store) -> Iterator[Cell]:
    return (cell for cell in cells if store.find(cell) is None)
