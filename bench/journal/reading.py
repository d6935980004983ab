"""MB per CPU-second and memory of the reader, beside JSON decoded line by line. Each reading is a process of its own.

`python -m bench.journal.reading CONTESTANT FOLDER` is that process; it prints CPU-seconds, rows and peak memory in KiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.journal.figures import Figure
from bench.journal.rows import row
from ratchet.logs.reader import read, read_json
from ratchet.logs.rows import ScoreRow, TokensRow
from ratchet.logs.segments import compress, seal

LOG = "interactions"
EMPTY = "nothing"


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    log: str
    """Which of the three logs it reads: `plain`, its first `tenth`, or `sealed`."""
    read: Callable[[Path], Iterable[object]]


def lines_of(folder: Path) -> Iterator[bytes]:
    with (folder / f"{LOG}.jsonl").open("rb") as file:
        yield from file


CONTESTANTS = (
    Contestant(EMPTY, "plain", lambda folder: ()),
    Contestant("json.loads, line by line", "plain", lambda folder: map(json.loads, lines_of(folder))),
    Contestant("orjson.loads, line by line", "plain", lambda folder: map(orjson.loads, lines_of(folder))),
    Contestant("read: lines, checked", "plain", lambda folder: read(folder, LOG)),
    Contestant("read_json: dict", "plain", lambda folder: read_json(folder, LOG, dict)),
    Contestant("read_json: score and version only", "plain", lambda folder: read_json(folder, LOG, ScoreRow)),
    Contestant("read_json: ids and logprobs too", "plain", lambda folder: read_json(folder, LOG, TokensRow)),
    Contestant("read_json: the same, a tenth of the log", "tenth", lambda folder: read_json(folder, LOG, TokensRow)),
    Contestant("read_json: the same, from .zst", "sealed", lambda folder: read_json(folder, LOG, TokensRow)),
)


def read_rounds(disk: Path, rounds: int, megabytes: int) -> list[Figure]:
    """Memory is the peak over that of a process which reads nothing."""
    found = []
    with tempfile.TemporaryDirectory(dir=disk) as name:
        sizes = make_logs(Path(name), megabytes)
        for _ in range(rounds):
            peaks = {}
            for it in CONTESTANTS:
                seconds, rows, peaks[it.name] = read_once(it.name, Path(name) / it.log)
                if it.name != EMPTY:
                    assert rows == sizes[it.log][1], f"{it.name} read {rows} rows of {sizes[it.log][1]}"
                    found.append(Figure(it.name, sizes[it.log][0] / 1e6 / seconds, peaks[it.name] - peaks[EMPTY]))
    return found


def make_logs(folder: Path, megabytes: int) -> dict[str, tuple[int, int]]:
    """Bytes and rows of each log."""
    rows = [row(number) for number in range(1_000)]
    block = b"\n".join(rows) + b"\n"
    blocks = {"plain": max(10, megabytes * 1_000_000 // len(block))}
    blocks |= {"tenth": blocks["plain"] // 10, "sealed": blocks["plain"]}
    for kind, count in blocks.items():
        (folder / kind).mkdir()
        with (folder / kind / f"{LOG}.jsonl").open("wb") as file:
            file.writelines(block for _ in range(count))
    compress(seal(folder / "sealed", LOG, 0, blocks["sealed"] * len(block)))
    return {kind: (count * len(block), count * len(rows)) for kind, count in blocks.items()}


def read_once(contestant: str, folder: Path) -> tuple[float, int, float]:
    """CPU-seconds, rows, and peak memory in MiB."""
    command = [sys.executable, "-m", "bench.journal.reading", contestant, str(folder)]
    seconds, rows, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(rows), int(peak) / 1024


def child(name: str, folder: Path) -> None:
    contestant = next(it for it in CONTESTANTS if it.name == name)
    began = time.process_time()
    rows = sum(1 for _ in contestant.read(folder))
    print(time.process_time() - began, rows, peak_kib())


def peak_kib() -> int:
    """Not from getrusage: that begins with what the parent process used."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]))
