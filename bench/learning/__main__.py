"""python -m bench.learning [--seeds 8] [--rounds 2]: which learner, from as many samples, tuned as much.

A small model answers 512 times a round, a bigger one scores; what counts is the probability of the right answer to
1,000 tasks whose answers no model here was ever trained on. Two base models, two judges, seeds of the tuning and of the
result apart, four points of a grid for each learner. Each cell is kept when it is done: the command goes on where it
was left. Prints a table for each judge; everything goes to bench/out/learning.json. Exits 1 where
offline GRPO's 95 % interval over the best control, with the rough judge, is not above 0.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict

from bench.learning.cells import (
    BESIDES,
    JUDGEMENTS,
    LEARNERS,
    Cell,
    Lesson,
    Store,
    best_points,
    missing,
    result_cells,
    run_cell,
    tuning_cells,
)
from bench.learning.models import make_models
from bench.learning.table import print_table, verdict
from bench.machine import OUT, machine, write_figures


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    store = Store(OUT / "learning")
    learners = options.only or LEARNERS
    tuning = tuning_cells(learners)
    ends = time.monotonic() + 60 * options.budget_minutes
    make_models(store.models)
    run(list(missing(tuning, store)), store, options.processes, ends)
    tuned = [lesson for cell in tuning if (lesson := store.find(cell)) is not None]
    if len(tuned) < len(tuning):
        sys.exit(f"{len(tuning) - len(tuned)} of {len(tuning)} tuning cells are to be run: the same command goes on")
    points = best_points(tuned)
    results = result_cells(learners, options.seeds, options.rounds, points)
    run(list(missing(results, store)), store, options.processes, ends)
    done = [lesson for cell in results if (lesson := store.find(cell)) is not None]
    held = print_report(done, [*tuned, *done])
    if len(done) < len(results):
        sys.exit(f"{len(results) - len(done)} of {len(results)} cells are to be run: the same command goes on")
    sys.exit(0 if options.only or held else 1)


def run(cells: Sequence[Cell], store: Store, processes: int, ends: float) -> None:
    """Run the cells; none is begun after `ends`."""
    waiting, context = iter(cells), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        working: set[Future[Lesson]] = set()
        while True:
            while len(working) < processes and time.monotonic() < ends and (cell := next(waiting, None)) is not None:
                working.add(pool.submit(run_cell, cell, store.models))
            if not working:
                return
            ended, working = wait(working, return_when=FIRST_COMPLETED)
            for lesson in (future.result() for future in ended):
                store.keep(lesson)
                scores = "".join(f"{score:8.3f}" for score in lesson.scores)
                print(f"{lesson.cell.name:64}{scores}{sum(lesson.seconds):8.1f} CPU-s", flush=True)


def print_report(done: Sequence[Lesson], everything: Sequence[Lesson]) -> bool:
    """Print and write the report. True: the claim holds with the rough judge."""
    by_judgement = {name: [one for one in done if one.cell.judgement == name] for name in JUDGEMENTS}
    present = {name: lessons for name, lessons in by_judgement.items() if lessons}
    print(machine())
    for name, lessons in present.items():
        print_table(name, lessons)
    held = {name: verdict(name, lessons) for name, lessons in present.items()}
    lessons = [asdict(one) for one in everything]
    write_figures("learning", {"machine": machine(), "claim_holds": held, "lessons": lessons})
    return held.get("rough", False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="of the result, for each base model and judge")
    parser.add_argument("--rounds", type=int, default=2, help="of 512 samples each")
    parser.add_argument("--only", nargs="+", choices=[*LEARNERS, *BESIDES], help="these learners")
    parser.add_argument("--budget-minutes", type=float, default=1e6, help="begin no cell later than that")
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2), help="of one thread each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
