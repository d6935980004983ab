"""python -m bench.own [--families …] [--sizes 64] [--methods …] [--seeds 1]: jobs of teams, with references or not.

For each family, size and seed SmolLM2 answers the tasks in groups, as a fleet would; each method trains from that log
by the trainer itself and is measured by the share of exactly right answers to held-out tasks. Each cell is kept when it
is done: the command goes on where it was left, and begins none after `--minutes`. Methods have steps of their own, so
their seconds are told and are not equal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.learning.table import interval
from bench.machine import machine
from bench.own.families import FAMILIES, with_wrong_references

OUT = Path(__file__).parents[1] / "out" / "own"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "base": ("", {}),
    "grpo": ("grpo", {"demonstrations": []}),
    "best-of-group-sft": ("best-of-group-sft", {"demonstrations": []}),
    "references": ("grpo", {"demonstrations": ["reference"]}),
    "references-then-grpo": ("grpo", {"demonstrations": ["reference"], "mixture": "first"}),
}
"""Algorithm and hyperparameters; the base model is not trained."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`wrong`: percent of the references that are another task's."""

    family: str
    size: int
    wrong: int
    seed: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.size}-wrong{self.wrong}-seed{self.seed}-{self.method}"


def main() -> None:
    asked = _options()
    warnings.simplefilter("ignore")
    ends = time.monotonic() + 60 * asked.minutes
    for cell in _cells(asked):
        path = OUT / "cells" / f"{cell.name}.json"
        if not path.exists() and time.monotonic() < ends:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(_run(cell, asked), indent=1))
        print(_line(cell, json.loads(path.read_text())) if path.exists() else f"{cell.name}: not run", flush=True)
    print(machine())


def _cells(asked: argparse.Namespace) -> Iterator[Cell]:
    places = itertools.product(asked.families, asked.sizes, asked.wrong, range(asked.seeds), asked.methods)
    return (Cell(*place) for place in places)


def _run(cell: Cell, asked: argparse.Namespace) -> dict[str, Any]:
    from bench.own.world import measure, train, with_references, write_log

    family = FAMILIES[cell.family]
    plain = OUT / "logs" / f"{cell.family}-{cell.size}-{cell.seed}"
    tasks = family.tasks(cell.size, cell.seed)
    if not plain.exists():
        write_log(plain, asked.model, family, tasks, asked.group, cell.seed)
    given, wrong = with_wrong_references(tasks, cell.wrong / 100, cell.seed)
    logs = with_references(plain, OUT / "logs" / cell.name, family, given)
    algorithm, knobs = METHODS[cell.method]
    found: dict[str, Any] = {"cell": asdict(cell), "wrong_tasks": sorted(wrong), "seconds": 0.0}
    home = None
    if algorithm:
        began, adapters = time.monotonic(), OUT / "adapters" / cell.name
        shutil.rmtree(adapters, ignore_errors=True)
        outcome, home = train(logs, adapters, asked.model, algorithm, knobs, cell.seed)
        found |= {"seconds": time.monotonic() - began, "status": outcome.status, "reason": outcome.reason}
        found |= {"counts": outcome.counts, "metrics": outcome.metrics}
    held_out = family.tasks(asked.held_out, cell.seed, held_out=True)
    return found | {"shares": measure(asked.model, family, held_out, asked.each, cell.seed, home).shares}


def _line(cell: Cell, found: dict[str, Any]) -> str:
    """The mean over tasks with its 95 % interval: of the tasks, not of trainings."""
    mean, half = interval(found["shares"]) if len(found["shares"]) > 1 else (statistics.fmean(found["shares"]), 1.0)
    doubtful = found.get("counts", {}).get("demonstrations.doubtful", 0)
    told = f"{cell.name:48}{mean:8.3f} ± {half:.3f}{found['seconds']:9.0f} s  {found.get('status', '')}"
    return f"{told}  {doubtful} references look wrong" if doubtful else told


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--sizes", nargs="+", type=int, default=[64], help="tasks that are trained on")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--wrong", nargs="+", type=int, default=[0], help="percent of references that are wrong")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell later than that")
    parser.add_argument("--group", type=int, default=8, help="answers to each task that is trained on")
    parser.add_argument("--held-out", type=int, default=32, help="tasks that are measured")
    parser.add_argument("--each", type=int, default=2, help="answers to each of them")
    parser.add_argument("--model", default="smollm2", help="ratchet models fetch smollm2 gets it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
