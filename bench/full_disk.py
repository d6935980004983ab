"""`python -m bench.full_disk`: the orchestrator's disk is filled and freed a thousand times under load; then the books.

Needs the right to mount a small tmpfs. Exit code 0 only if nothing was lost, doubled or told two ways.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.machine import machine
from tests.services.orchestrator.filling_disk import fill_and_free


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.full_disk", description=__doc__)
    parser.add_argument("--cycles", type=int, default=1_000, help="times the disk is filled and freed (1000)")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; printed, random if not given")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ratchet-full-disk-") as folder:
        books = asyncio.run(fill_and_free(Path(folder), given.cycles, seed))
    print(f"{machine()}; seed {seed}, {time.monotonic() - began:.0f} s")
    print(f"{books.cycles:,} times full and free, {books.tasks:,} tasks, {books.pauses:,} commits refused")
    print(f"told: {dict(books.statuses)}")
    print(*([one[:2000] for one in books.complaints[:50]] or ["nothing was lost, doubled or told two ways"]), sep="\n")
    return 1 if books.complaints or books.cycles < given.cycles else 0


if __name__ == "__main__":
    sys.exit(main())
