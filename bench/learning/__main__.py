"""python -m bench.learning [--seeds 5] [--rounds 3]: how fast each way of learning gets better, per sample and second.

The small model answers 512 times a round, the bigger one scores; what counts is the share of right answers to tasks
that nobody was trained on, which a verifier finds. Two worlds (world.py), hyperparameters by one grid for all, on other
seeds (tuning.py). Prints a table for each; figures go to bench/out/learning.json. Exits 1 if a bar is missed: the mean
over the rounds (all numbers of samples count) of offline GRPO is above the best-of-group control's, and at 95 % of
online GRPO's at least.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.learning.learners import CONTROL, OFFLINE, ONLINE, RATIO_ONE, learner
from bench.learning.lesson import Lesson, lesson
from bench.learning.table import bars_met, print_table
from bench.learning.world import ROUGH, SHARP, Judgement
from bench.machine import machine

OUT = Path(__file__).parents[1] / "out" / "learning.json"
WORLDS = {"sharp": SHARP, "rough": ROUGH}
KNOBS: dict[str, dict[str, Any]] = {
    OFFLINE: {},
    RATIO_ONE: {},
    CONTROL: {"epochs": 32, "learning_rate": 1e-3},
    ONLINE: {"epochs": 4, "learning_rate": 1e-3},
}
"""The best of each one's grid; of offline GRPO they are the trainer's defaults. The control has twice the passes of its
best, which did it good on the same seeds."""


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    knobs = KNOBS if options.only is None else {options.only: KNOBS[options.only]}
    knobs = {name: own | options.knobs for name, own in knobs.items()}
    print(f"{machine()}; hyperparameters: {knobs}")
    worlds = list(WORLDS.values()) if options.world is None else [WORLDS[options.world]]
    lessons = {world.name: world_lessons(world, knobs, options) for world in worlds}
    for world in worlds:
        print_table(world, lessons[world.name], options.level)
    OUT.parent.mkdir(exist_ok=True)
    everything = [asdict(one) for found in lessons.values() for one in found]
    used = {name: value for name, value in vars(options).items() if name != "models"}
    OUT.write_text(json.dumps({"machine": machine(), "options": used, "lessons": everything}, indent=2))
    if options.only is None:
        met = [bars_met(name, found) for name, found in lessons.items()]
        sys.exit(not all(met))


def world_lessons(world: Judgement, knobs: dict[str, dict[str, Any]], options: argparse.Namespace) -> list[Lesson]:
    lessons = []
    for seed in range(options.seeds):
        for name, own in knobs.items():
            one = lesson(name, learner(name, own), options.models, world, seed=seed, rounds=options.rounds)
            print(f"{world.name}, seed {seed} {name:20}" + "".join(f"{score:8.3f}" for score in one.scores), flush=True)
            lessons.append(one)
    return lessons


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--world", choices=WORLDS, help="one of the two")
    parser.add_argument("--level", type=float, default=0.8, help="the score to reach")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--only", choices=KNOBS, help="one learner")
    parser.add_argument("--knobs", type=json.loads, default={}, help="hyperparameters for all of them, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
