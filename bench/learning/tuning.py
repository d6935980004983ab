"""python -m bench.learning.tuning: the same small grid for each learner, on seeds that the table never sees.

A point's figure is the mean held-out score over rounds, seeds and worlds. The best point of each learner is the one
it has in the table (KNOBS in __main__); that of offline GRPO became the trainer's default. The weight of negative
advantages, the clipping and the samples a step were looked at before, by hand, on the same seeds. Figures go to
bench/out/learning_tuning.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.learning.learners import CONTROL, OFFLINE, ONLINE, learner
from bench.learning.lesson import Lesson, lesson
from bench.learning.world import ROUGH, SHARP
from bench.machine import machine

OUT = Path(__file__).parents[1] / "out" / "learning_tuning.json"
SEEDS = (100, 101)
ROUNDS = 2
GRID: tuple[dict[str, Any], ...] = (
    {"epochs": 4, "learning_rate": 1e-3},
    {"epochs": 8, "learning_rate": 1e-3},
    {"epochs": 8, "learning_rate": 2e-3},
    {"epochs": 16, "learning_rate": 1e-3},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{machine()}; seeds {SEEDS}, {ROUNDS} rounds, both worlds; mean held-out share right over the rounds")
    figures = [
        {"knobs": knobs, "lessons": list(map(asdict, point(name, knobs, options.models)))}
        for name in (OFFLINE, CONTROL, ONLINE)
        for knobs in GRID
    ]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": machine(), "points": figures}, indent=2))


def point(name: str, knobs: dict[str, Any], models: Path) -> list[Lesson]:
    lessons = [
        lesson(name, learner(name, knobs), models, world, seed=seed, rounds=ROUNDS)
        for world in (SHARP, ROUGH)
        for seed in SEEDS
    ]
    by_world = [statistics.fmean(one.mean for one in lessons if one.world == world.name) for world in (SHARP, ROUGH)]
    cells = "".join(f"{value:8.3f}" for value in (*by_world, statistics.fmean(by_world)))
    print(f"{name:20}{knobs['epochs']:>3} passes{knobs['learning_rate']:>8g}{cells}", flush=True)
    return lessons


if __name__ == "__main__":
    main()
