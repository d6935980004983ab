"""One learner's rounds in one world. Every learner of a seed sees the same tasks in the same order."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.learning.learners import Offline, Online, Round
from bench.learning.world import Judgement, World


@dataclass(frozen=True, slots=True)
class Lesson:
    """The held-out score before and after each round; CPU-seconds and optimiser steps of each round."""

    learner: str
    world: str
    seed: int
    scores: tuple[float, ...]
    seconds: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Over the rounds: the area under the learning curve, so that all numbers of samples count."""
        return sum(self.scores[1:]) / len(self.scores[1:])


def lesson(
    name: str, learner: Offline | Online, models: Path, judgement: Judgement, *, seed: int, rounds: int
) -> Lesson:
    world = World(models, seed, judgement)
    adapter: Path | None = None
    scores, seconds, steps = [world.held_out_score(None, seed)], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            tasks, began = world.tasks(), time.process_time()
            learned = learner.learn(Round(world, adapter, tasks, 100 * seed + number, Path(scratch) / str(number)))
            adapter = learned.adapter
            seconds.append(time.process_time() - began)
            steps.append(learned.steps)
            scores.append(world.held_out_score(adapter, seed))
    return Lesson(name, judgement.name, seed, tuple(scores), tuple(seconds), tuple(steps))
