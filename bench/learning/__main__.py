"""python -m bench.learning [--seeds 5] [--rounds 3]: how fast each way of learning gets better, per sample and second.

The small model answers 64 tasks 8 times a round, the bigger one scores; what counts is the share of right answers to
tasks that nobody was trained on, which a verifier finds. Prints a table; figures go to bench/out/learning.json. Exits 1
if a bar is missed: offline GRPO ends above the best-of-group control, and at 95 % of online GRPO at least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.learning.learners import Round, learners
from bench.learning.world import GROUP, World
from bench.machine import machine

OUT = Path(__file__).parents[1] / "out" / "learning.json"
OFFLINE, CONTROL, ONLINE = "offline GRPO", "best-of-group SFT", "online GRPO (TRL)"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One learner on one seed: the score before and after each round, and the CPU-seconds of each round."""

    learner: str
    seed: int
    scores: tuple[float, ...]
    seconds: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=64, help="tasks a round")
    parser.add_argument("--level", type=float, default=0.7, help="the score to reach")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--only", help="one learner's name")
    parser.add_argument("--knobs", type=json.loads, default={}, help="hyperparameters of GRPO, as JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{machine()}\n{options.tasks} tasks of {GROUP} samples a round; {options.knobs or 'default'} hyperparameters"
    )
    paths = [path for seed in range(options.seeds) for path in run_seed(seed, options)]
    table(paths, options.tasks * GROUP, options.level)
    OUT.parent.mkdir(exist_ok=True)
    figures = {"machine": machine(), "options": vars(options) | {"models": "models"}, "paths": list(map(asdict, paths))}
    OUT.write_text(json.dumps(figures, indent=2))
    sys.exit(0 if options.only else not bars_met(paths))


def run_seed(seed: int, options: argparse.Namespace) -> list[Lesson]:
    chosen = {name: one for name, one in learners(options.knobs).items() if options.only in (None, name)}
    return [run(name, learner, seed, options) for name, learner in chosen.items()]


def run(name: str, learner: Any, seed: int, options: argparse.Namespace) -> Lesson:
    """Every learner of a seed sees the same tasks in the same order."""
    world = World(options.models, seed)
    adapter: Path | None = None
    scores, seconds = [world.held_out_score(None, seed)], []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.rounds):
            tasks, began = world.tasks(options.tasks), time.process_time()
            given = Round(world, adapter, tasks, 100 * seed + number, Path(scratch) / str(number))
            adapter = learner.learn(given)
            seconds.append(time.process_time() - began)
            scores.append(world.held_out_score(adapter, seed))
    print(f"seed {seed} {name:20}" + "".join(f"{score:8.3f}" for score in scores), flush=True)
    return Lesson(name, seed, tuple(scores), tuple(seconds))


def table(paths: Sequence[Lesson], samples: int, level: float) -> None:
    rounds = len(paths[0].scores)
    heads = "".join(f"{f'round {number}':>15}" for number in range(rounds))
    print(
        f"\nheld-out share right, mean ± standard error\n{'':20}{heads}{f'samples to {level:g}':>18}{'CPU-s to it':>13}"
    )
    for name in dict.fromkeys(path.learner for path in paths):
        own = [path for path in paths if path.learner == name]
        cells = "".join(f"{_mean_and_error([path.scores[n] for path in own]):>15}" for n in range(rounds))
        print(f"{name:20}{cells}{_samples_to(own, samples, level):>18}{_seconds_to(own, level):>13}")


def _mean_and_error(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {error:.3f}"


def _rounds_to(path: Lesson, level: float) -> float | None:
    """Rounds until the score is reached, in between two by a straight line; None if it never is."""
    for number, (before, after) in enumerate(zip(path.scores, path.scores[1:], strict=False)):
        if after >= level:
            return number + max(0.0, (level - before) / (after - before)) if after > before else number
    return None


def _samples_to(paths: Sequence[Lesson], samples: int, level: float) -> str:
    found = [_rounds_to(path, level) for path in paths]
    reached = [rounds * samples for rounds in found if rounds is not None]
    return _of(reached, len(paths), ",.0f")


def _seconds_to(paths: Sequence[Lesson], level: float) -> str:
    reached = []
    for path in paths:
        if (rounds := _rounds_to(path, level)) is not None:
            whole = int(rounds)
            part = path.seconds[whole] * (rounds - whole) if whole < len(path.seconds) else 0.0
            reached.append(sum(path.seconds[:whole]) + part)
    return _of(reached, len(paths), ".1f")


def _of(reached: Sequence[float], count: int, form: str) -> str:
    if not reached:
        return "never"
    missing = f" ({len(reached)} of {count})" if len(reached) < count else ""
    return f"{statistics.median(reached):{form}}{missing}"


def bars_met(paths: Sequence[Lesson]) -> bool:
    last = {
        name: statistics.fmean([path.scores[-1] for path in paths if path.learner == name])
        for name in (OFFLINE, CONTROL, ONLINE)
    }
    above, near = last[OFFLINE] > last[CONTROL], last[OFFLINE] >= 0.95 * last[ONLINE]
    print(
        f"\noffline GRPO above the control: {'yes' if above else 'NO'}; within 5 % of online: {'yes' if near else 'NO'}"
    )
    return above and near


if __name__ == "__main__":
    main()
