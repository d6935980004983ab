"""`python -m bench.api`: the orchestrator's API beside a bare handler, in turns."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from bench.api.compare import compare, table
from bench.machine import machine, write_figures
from bench.rig import private_broker


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds measured at each number of clients (4)")
    given = parser.parse_args()
    with private_broker() as (url, _):
        posted = compare(url, rounds=given.rounds, seconds=given.seconds)
    on = machine()
    write_figures("api", {"machine": on, "posting": [asdict(one) for one in posted]})
    print(f"{on}\nPOST /v1/tasks, 500-byte tasks; medians of {given.rounds} rounds of {given.seconds:.0f} s")
    print(table(posted))


if __name__ == "__main__":
    main()
