"""python -m bench.own [--families …] [--sizes 64] [--methods …] [--seeds 1] [--seed 0]: jobs, with references or not.

For each family, size and seed each method trains SmolLM2 by the trainer itself, from a log as a fleet writes it, and is
measured by the share of exactly right answers to held-out tasks. Methods that learn from the model's own samples get a
group of answers to each task, and the seconds of these answers count; the others get one answer a task. Each cell is
kept when it is done: the command goes on where it was left, and begins none after `--minutes`. Methods take as many
steps as they do in a fleet, so their CPU-seconds differ and are printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bench.machine import OUT, machine
from bench.own.cells import METHODS, Cell
from bench.own.families import FAMILIES, with_wrong_references
from bench.own.table import cell_line, print_tables
from ratchet.files.atomic_file import replace_file

OWN = OUT / "own"


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    ends, found = time.monotonic() + 60 * options.minutes, []
    for cell in _cells(options):
        path = OWN / "cells" / f"{cell.name}.json"
        if not path.exists() and time.monotonic() < ends:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(_run(cell, options), indent=1).encode())
        if path.exists():
            found.append((cell, json.loads(path.read_text())))
        print(cell_line(*found[-1]) if path.exists() else f"{cell.name}: not run", flush=True)
    print(machine())
    print_tables(found)


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    """All families of a method before the next one, all methods of a seed before the next seed."""
    seeds = range(options.seed, options.seed + options.seeds)
    places = itertools.product(seeds, options.sizes, options.wrong, options.methods, options.families)
    return (Cell(family, size, wrong, seed, method) for seed, size, wrong, method, family in places)


def _run(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    from bench.own.world import measure, train, with_references, write_log

    family, method = FAMILIES[cell.family], METHODS[cell.method]
    tasks = family.tasks(cell.size, cell.seed)
    given, wrong = with_wrong_references(tasks, cell.wrong / 100, cell.seed)
    found: dict[str, Any] = {"cell": asdict(cell), "wrong_tasks": sorted(wrong), "seconds": 0.0, "answer_seconds": 0.0}
    home = None
    if method.algorithm:
        each = options.group if method.takes_samples else 0
        plain = OWN / "logs" / f"{cell.family}-{cell.size}-{cell.seed}-by{each}"
        if not plain.exists():
            write_log(plain, options.model, family, tasks, each, cell.seed)
        logs = with_references(plain, OWN / "logs" / cell.name, family, given)
        began, adapters = time.process_time(), OWN / "adapters" / cell.name
        shutil.rmtree(adapters, ignore_errors=True)
        outcome, home = train(logs, adapters, options.model, method.algorithm, method.hyperparameters, cell.seed)
        found |= {"seconds": time.process_time() - began, "status": outcome.status, "reason": outcome.reason}
        found |= {"counts": outcome.counts, "metrics": outcome.metrics}
        if method.takes_samples:
            found["answer_seconds"] = json.loads((plain / "seconds.json").read_text())
        if home is not None:
            found["doubtful"] = json.loads((home / "training_report.json").read_text()).get("doubtful", [])
    held_out = family.tasks(options.held_out, cell.seed, held_out=True)
    return found | {"shares": measure(options.model, family, held_out, options.each, cell.seed, home)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--sizes", nargs="+", type=int, default=[64], help="tasks that are trained on")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--wrong", nargs="+", type=int, default=[0], help="percent of references that are wrong")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell later than that")
    parser.add_argument("--group", type=int, default=8, help="answers to each task that is trained on")
    parser.add_argument("--held-out", type=int, default=32, help="tasks that are measured")
    parser.add_argument("--each", type=int, default=2, help="answers to each of them")
    parser.add_argument("--model", default="smollm2", help="ratchet models fetch smollm2 gets it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
