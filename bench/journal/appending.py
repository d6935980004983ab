"""Records/s on disk, at several concurrencies, beside one write and one fdatasync for each record."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.journal.figures import Figure
from bench.journal.rows import row
from ratchet.logs.journal import Journal

CONTESTANTS = (
    (1, 0.0, False),
    (32, 0.0, False),
    (32, 0.0, True),
    (256, 0.0, False),
    (256, 0.0, True),
    (256, 0.002, False),
)
"""Appenders at once, seconds a commit gathers, and whether it keeps seals of what it writes."""


def append_rounds(disk: Path, rounds: int, seconds: float) -> list[Figure]:
    lines = [row(number) for number in range(500)]
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=disk) as name:
            folder = Path(name)
            found.append(measured("fdatasync each", partial(each_synced, folder, lines, seconds)))
            for appenders, gather_s, sealed in CONTESTANTS:
                how = (f", gathering {gather_s * 1000:.0f} ms" if gather_s else "") + (", sealed" if sealed else "")
                append = partial(journalled, folder, lines, seconds, appenders, gather_s, sealed=sealed)
                found.append(measured(f"journal, {appenders} at once{how}", append))
    return found


def measured(contestant: str, append: Callable[[], int]) -> Figure:
    began, cpu = time.perf_counter(), time.process_time()
    count = append()
    return Figure(contestant, count / (time.perf_counter() - began), 1e6 * (time.process_time() - cpu) / count)


def each_synced(folder: Path, lines: Sequence[bytes], seconds: float) -> int:
    fd = os.open(folder / "each.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        os.write(fd, lines[count % len(lines)] + b"\n")
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count


def journalled(
    folder: Path, lines: Sequence[bytes], seconds: float, appenders: int, gather_s: float, *, sealed: bool
) -> int:
    async def append(journal: Journal, end: float) -> int:
        count = 0
        while time.perf_counter() < end:
            await journal.append([lines[count % len(lines)]])
            count += 1
        return count

    async def run() -> int:
        name = f"journal-{appenders}-{gather_s}-{sealed}"
        journal = Journal.open(folder, name, gather_s=gather_s, seals=folder / "seals" if sealed else None)
        end = time.perf_counter() + seconds
        counts = await asyncio.gather(*(append(journal, end) for _ in range(appenders)))
        await journal.close()
        return sum(counts)

    return asyncio.run(run())
