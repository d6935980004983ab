"""`python -m bench.recorded`: 200 recorded conversations on a fleet whose agent, recorders and broker are killed again
and again; then the books. Exit code 0 only if each was answered or ended with a reason, none is in the log twice or in
part, and no key is worth anything. A Ctrl-C, or SIGTERM, ends it early: no more is begun or killed, what has begun
comes to its end, and all is checked of that. Needs a private RabbitMQ node.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from bench.long_run import early_end
from bench.machine import log_the_bench_alone, machine, write_figures
from bench.recorded.books import measure
from bench.recorded.rig import Plan
from bench.rollouts.left_behind import adopt_orphans, processes
from tests.acceptance.brokers import mortal_broker

TASKS, SAMPLES, TURNS, AT_ONCE = 25, 8, 10, 5
LEFT_EVERY = 10
"""One task in so many is left: nobody comes back for it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recorded", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"of {SAMPLES} conversations each ({TASKS})")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; printed, random if not given")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    left = frozenset(f"talk-{number}" for number in range(LEFT_EVERY - 1, given.tasks, LEFT_EVERY))
    plan = Plan(given.tasks, SAMPLES, TURNS, AT_ONCE, left)
    log_the_bench_alone()
    adopt_orphans()
    with (
        early_end() as end,
        tempfile.TemporaryDirectory(prefix="ratchet-recorded-") as name,
        mortal_broker(Path(name) / "broker") as broker,
    ):
        found = measure(broker, Path(name), plan, seed, end)
    found["complaints"] += [f"left behind: {one}" for one in processes()]
    found |= {"machine": machine(), "seed": seed, "tasks": plan.tasks, "left": len(left)}
    print(write_figures("recorded", found))
    return 1 if found["complaints"] else 0


if __name__ == "__main__":
    sys.exit(main())
