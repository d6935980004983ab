"""`python -m bench.journal`: appending and reading, medians over interleaved rounds. Under a minute, 0.3 GB of disk."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bench.journal.appending import append_rounds
from bench.journal.figures import medians, table
from bench.journal.reading import read_rounds
from bench.machine import machine

OUT = Path(__file__).parents[1] / "out"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of appending per contestant and round (1)")
    parser.add_argument("--megabytes", type=int, default=120, help="size of the log that is read (120)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds, given.megabytes = 1, 0.2, 20
    return given


def main() -> None:
    given = options()
    OUT.mkdir(exist_ok=True)
    appended = medians(append_rounds(OUT, given.rounds, given.seconds))
    found = medians(read_rounds(OUT, given.rounds, given.megabytes))
    on = machine()
    figures = {"on": on, "append": [asdict(it) for it in appended], "read": [asdict(it) for it in found]}
    (OUT / "journal.json").write_text(json.dumps(figures, indent=2) + "\n")
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"on: {on}; records of 2.9 kB\n")
    print(table(appended, "records/s", "CPU us/record"), end="\n\n")
    print(table(found, "MB/CPU-s", "peak memory, MiB"), end="\n\nwritten to bench/out/journal.json\n")


if __name__ == "__main__":
    main()
