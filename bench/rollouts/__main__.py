"""`python -m bench.rollouts`: what a rollout of a program costs over a bare process, what eight at once cost each
other, and what a bad neighbour costs.

`--kills --people`: 200 rollouts that ask a person three times each, while runner, orchestrator, broker and
programs are killed.
`--kills`: 200 tasks of 8 rollouts each, while whatever takes part in them is killed at every step; then the books. Exit
code 0 only if nothing was lost, scored twice or taught that has no score, and nothing is left on the machine. A Ctrl-C,
or SIGTERM, ends it early: no more is asked or killed, what is in flight is settled, and all is checked of what there
is. Needs a private RabbitMQ node.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.long_run import early_end
from bench.machine import log_the_bench_alone, machine, write_figures

TASKS, SAMPLES = 200, 8


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rollouts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", action="store_true", help="kill -9 at every step, in place of the figures")
    parser.add_argument("--people", action="store_true", help="with --kills: rollouts that ask a person three times")
    parser.add_argument("--spare", nargs="*", default=[], help="with --people: what is not killed, such as program")
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"with --kills: of {SAMPLES} rollouts each ({TASKS})")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; printed, random if not given")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    given = parser.parse_args()
    given.seed = random.randrange(1 << 32) if given.seed is None else given.seed
    return given


@contextmanager
def passable() -> Iterator[Path]:
    """Yield a temporary folder that every user may pass, as sandboxes have own user ids."""
    with tempfile.TemporaryDirectory(prefix="ratchet-rollouts-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def under_kills(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from bench.rollouts import kills, people
    from bench.rollouts.left_behind import adopt_orphans
    from tests.acceptance.brokers import mortal_broker

    adopt_orphans()
    strikes = tuple(one for one in people.STRIKES if one.victim not in given.spare) if given.people else kills.STRIKES
    plan = kills.Plan(given.tasks, 1 if given.people else SAMPLES, given.seed, strikes=strikes)
    measure: Any = people.measure if given.people else kills.measure
    with early_end() as end, mortal_broker(folder / "broker") as broker:
        books, rig, pace = asyncio.run(measure(broker, folder, plan, end))
    left = kills.left_behind(rig, folder)
    return {
        "machine": machine(),
        "load": pace.load,
        "seed": given.seed,
        "planned": f"{given.tasks} tasks" + (", ended early" if end.asked else ""),
        "kills": {name: count for name, count in sorted(rig.struck.items()) if " " not in name},
        "strikes": {name: count for name, count in sorted(rig.struck.items()) if " " in name},
        "left": left,
        **vars(books),
        "complaints": rig.complaints + [f"left behind: {one}" for one in left],
    }


def main() -> int:
    given = options()
    log_the_bench_alone()
    with passable() as folder:
        if given.kills:
            found = under_kills(given, folder)
        else:
            from bench.rollouts.figures import measure

            found = {"machine": machine()} | measure(folder, given.rounds)
    print(write_figures("rollouts-kills" if given.kills else "rollouts", found))
    return 1 if found.get("complaints") else 0


if __name__ == "__main__":
    sys.exit(main())
