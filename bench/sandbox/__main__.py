"""`python -m bench.sandbox`: start and runs/s of a sandboxed `python3 -c pass`, beside a plain subprocess, in turns."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from bench.machine import machine
from workbench.sandbox import cgroup
from workbench.sandbox.job import Job
from workbench.sandbox.running import Stop, run
from workbench.sandbox.syscalls import filters

OUT = Path(__file__).parents[1] / "out" / "sandbox.json"
COMMAND = ("python3", "-I", "-S", "-c", "pass")
THREADS = (1, 2, 4)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sandbox", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; medians over them are printed (3)")
    parser.add_argument("--runs", type=int, default=60, help="runs of each contestant and number of threads (60)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run at all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.runs = 1, 6
    return given


def plain() -> float:
    """Seconds of the whole run; a plain process has no set-up of its own."""
    began = time.perf_counter()
    subprocess.run(["/usr/bin/env", *COMMAND], env={"PATH": "/usr/bin:/bin"}, check=True)
    return time.perf_counter() - began


def sandboxed(cgroups: cgroup.Cgroups | None) -> Callable[[], float]:
    def once() -> float:
        stop = Stop()
        result = run(Job(COMMAND), filters(), cgroups, stop)
        stop.close()
        assert result.succeeded, result
        return result.start_s

    return once


def measured(once: Callable[[], float], runs: int, threads: int) -> tuple[float, float]:
    """Median of what `once` gives, and runs a second."""
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        seconds = list(pool.map(lambda _: once(), range(runs)))
    return median(seconds), runs / (time.perf_counter() - began)


def main() -> None:
    given = options()
    contestants: dict[str, Callable[[], float]] = {"plain subprocess": plain, "sandbox, measured": sandboxed(None)}
    if (found := cgroup.find()) is not None:
        contestants[f"sandbox, cgroup v{found.version}"] = sandboxed(found)
    rounds: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(given.rounds):
        for threads in THREADS:
            for name, once in contestants.items():
                rounds.setdefault((name, threads), []).append(measured(once, given.runs, threads))
    rows: list[dict[str, Any]] = [
        {
            "contestant": name,
            "threads": threads,
            "start_p50_ms": 1000 * median(start for start, _ in figures),
            "runs_per_s": median(rate for _, rate in figures),
        }
        for (name, threads), figures in rounds.items()
    ]
    figures = {"on": machine(), "rows": rows}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=2) + "\n")
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"on: {figures['on']}; a plain subprocess: the whole of its run\n")
    for row in rows:
        print(
            f"{row['contestant']:<20} {row['threads']} threads: start p50 {row['start_p50_ms']:6.1f} ms, "
            f"{row['runs_per_s']:6.1f} runs/s"
        )
    print("\nwritten to bench/out/sandbox.json")


if __name__ == "__main__":
    main()
