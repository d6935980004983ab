"""`python -m bench.faults --all`: every fault at every step of a task's life, on whole fleets; then the books.

Exit code 0 only if nothing was lost, doubled or told two ways, and every queue is empty at the end. `--list` shows the
table. `--only enospc --cycles 1000` fills and frees the disk of one orchestrator so many times, as fast as it can.
Needs a private RabbitMQ node, a C compiler and the right to mount a small tmpfs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.faults.rig import running_rig
from bench.faults.steps import STEPS
from bench.faults.table import FAULTS, Fault, Row, select_faults, strike
from bench.machine import log_the_bench_alone, machine, write_figures
from tests.acceptance.brokers import MortalBroker, mortal_broker
from tests.services.orchestrator.filling_disk import fill_and_free

log = logging.getLogger(__name__)

MOST_SHOWN = 2_000
ENOSPC = "enospc"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="every row of the table")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="this row, or all that begin so")
    parser.add_argument("--list", action="store_true", help="show the table and end")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="go on with rounds for so long, for all rows together"
    )
    parser.add_argument(
        "--cycles", type=int, help="with --only enospc: times one orchestrator's disk is filled and freed"
    )
    parser.add_argument("--tasks-per-s", type=float, default=40.0, help="tasks published a second (40)")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; printed, random if not given")
    given = parser.parse_args(arguments)
    given.seed = random.randrange(1 << 32) if given.seed is None else given.seed
    if not (given.all or given.only or given.list):
        parser.error("say --all, --only FAULT or --list")
    if given.cycles and given.only != [ENOSPC]:
        parser.error(f"--cycles goes with --only {ENOSPC}")
    return given


async def run(given: argparse.Namespace, faults: Sequence[Fault], folder: Path) -> list[Row]:
    rows, this = [], asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    with mortal_broker(folder / "broker") as broker:
        for fault in faults:
            share_s = 60 * given.minutes / len(faults)
            rows.append(Row(fault.name))
            try:
                await meet(fault, rows[-1], broker, folder / fault.name, given, share_s)
            except Exception as error:
                log.exception("%s: the bench itself failed", fault.name)
                rows[-1].complaints.append(f"the bench itself failed: {error!r}")
            log_row(rows[-1])
    return rows


async def meet(
    fault: Fault, row: Row, broker: MortalBroker, folder: Path, given: argparse.Namespace, share_s: float
) -> None:
    """Measure one row on a fleet of its own: every step once, and again until its share of the time is over."""
    ends = time.monotonic() + share_s
    folder.mkdir()
    async with running_rig(broker, folder, given.seed, tasks_per_s=given.tasks_per_s, hurried=fault.hurried) as rig:
        while not row.strikes or time.monotonic() < ends:
            for step in fault.steps:
                await strike(rig, fault, step, row)
    row.count(rig)


def log_row(row: Row) -> None:
    found = "; ".join([f"{len(row.complaints)} complaints", *row.complaints]) if row.complaints else "nothing lost"
    log.info("%s: %d times, %s tasks: %s", row.fault, sum(row.strikes.values()), f"{row.tasks:,}", found[:MOST_SHOWN])


def text(found: dict[str, Any]) -> str:
    steps = [step.name for step in STEPS]
    lines = [f"{found['machine']}; seed {found['seed']}, {found['minutes']:.0f} minutes", ""]
    lines += [
        "".join(
            [f"{'fault':20}", *(f"{step:>12}" for step in steps), f"{'tasks':>9}{'slowest':>9}{'lost':>6}{'twice':>6}"]
        )
    ]
    for row in found["rows"]:
        struck = "".join(f"{row['strikes'].get(step, 0):12}" for step in steps)
        lines.append(
            f"{row['fault']:20}{struck}{row['tasks']:9,}{row['slowest_s']:8.1f}s{row['lost']:6}{row['logged_twice']:6}"
        )
    complaints = [f"{row['fault']}: {complaint}" for row in found["rows"] for complaint in row["complaints"]]
    return "\n".join([*lines, "", *(complaints or ["the books balance, and every queue is empty"])])


def listing() -> str:
    steps = f"each at: {', '.join(step.name for step in STEPS)}"
    return "\n".join([*(f"{fault.name:20} {fault.what}" for fault in FAULTS), steps])


def fill_the_disk(cycles: int, seed: int) -> int:
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ratchet-full-disk-") as folder:
        books = asyncio.run(fill_and_free(Path(folder), cycles, seed))
    print(f"{machine()}; seed {seed}, {time.monotonic() - began:.0f} s")
    print(f"{books.cycles:,} times full and free, {books.tasks:,} tasks, {books.pauses:,} commits refused")
    print(f"told: {dict(books.statuses)}")
    print(*([one[:2000] for one in books.complaints[:50]] or ["nothing was lost, doubled or told two ways"]), sep="\n")
    return 1 if books.complaints or books.cycles < cycles else 0


def main() -> int:
    given = options()
    if given.list:
        print(listing())
        return 0
    if given.cycles:
        return fill_the_disk(given.cycles, given.seed)
    log_the_bench_alone()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ratchet-faults-") as folder:
        rows = asyncio.run(run(given, select_faults(given.only), Path(folder)))
    minutes = (time.monotonic() - began) / 60
    found = {"machine": machine(), "seed": given.seed, "minutes": minutes, "rows": [asdict(row) for row in rows]}
    write_figures("faults", found)
    print(text(found))
    return 1 if any(row.complaints for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
