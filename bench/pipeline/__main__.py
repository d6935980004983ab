"""`python -m bench.pipeline`: the comparison; with `--flat`, whether the orchestrator's cost grows with its tasks."""

from __future__ import annotations

import argparse
import sys

from bench.machine import write_figures
from bench.pipeline.compare import compare
from bench.pipeline.flat import flat


def main() -> int:
    """0 if every bar is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; medians over them are printed (5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds measured in a round, per size (5)")
    parser.add_argument(
        "--flat", action="store_true", help="the orchestrator's memory and CPU per task as tasks add up"
    )
    parser.add_argument("--tasks", type=int, default=100_000, help="with --flat: up to how many tasks (100000)")
    given = parser.parse_args()
    found, text = flat(given.tasks) if given.flat else compare(given.rounds, given.seconds)
    write_figures("pipeline_flat" if given.flat else "pipeline", found)
    print(text)
    return 0 if all(bar["met"] for bar in found["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
