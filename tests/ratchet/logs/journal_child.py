"""Appends to a log until it is killed, and prints the first number of each group once its append has returned.

    python journal_child.py FOLDER FIRST_NUMBER

Eight appenders, groups of three numbered lines, segments so small that it seals and compresses all the time.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from ratchet.logs.journal import Journal


async def append(journal: Journal, numbers: count[int]) -> None:
    for first in numbers:
        lines = [b'{"number":%d,"of":"%s"}' % (first + part, b"x" * 200) for part in range(3)]
        await journal.append(lines)
        sys.stdout.write(f"{first}\n")
        sys.stdout.flush()


async def main(folder: Path, first: int) -> None:
    journal = Journal.open(folder, "log", max_segment_bytes=20_000, seals=folder / "seals")
    numbers = count(first, 3)
    await asyncio.gather(*(append(journal, numbers) for _ in range(8)))


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
