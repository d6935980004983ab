"""`python -m bench.pipeline`: the comparison; with `--flat`, whether the orchestrator's cost grows with its tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.machine import write_figures
from bench.pipeline.compare import SIZES, compare
from bench.pipeline.contestants import CONTESTANTS
from bench.pipeline.flat import flat


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; medians over them are printed (5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds measured in a round, per size (5)")
    parser.add_argument("--size", type=int, action="append", help="bytes of a task; may be repeated (500 and 4096)")
    parser.add_argument("--only", help="contestants, by comma, of: " + ", ".join(one.name for one in CONTESTANTS))
    parser.add_argument(
        "--unbound", action="store_true", help="the broker as `ratchet up` starts it, its threads not bound to cores"
    )
    parser.add_argument("--quick", action="store_true", help="one round of 2 s, 500 bytes: does it run at all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--flat", action="store_true", help="the orchestrator's memory and CPU per task as tasks add up"
    )
    parser.add_argument("--tasks", type=int, default=100_000, help="with --flat: up to how many tasks (100000)")
    given = parser.parse_args(arguments)
    given.size = given.size or list(SIZES)
    if given.quick:
        given.rounds, given.seconds, given.size = 1, 2.0, [SIZES[0]]
    return given


def main() -> int:
    """0 if every bar that was measured is met, else 1."""
    given = options()
    found, text = flat(given) if given.flat else compare(given)
    figures = write_figures("pipeline_flat" if given.flat else "pipeline", found)
    print(figures if given.json else text)
    return 0 if all(bar["met"] for bar in found["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
