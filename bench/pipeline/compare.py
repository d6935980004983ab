"""Rounds in which fleet and bare echo take turns on one private broker, so that a busy minute hits them alike.

It times whole processes on the machine it runs on and says nothing of any other; only the ratios travel.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.machine import machine
from bench.pipeline.contestants import echo, fleet
from bench.pipeline.load import Measured, Round
from bench.rig import private_broker

SIZES = (500, 4096)
"""Bytes of a task."""
FLEET, BARE = "fleet", "pika (bare echo)"
CONTESTANTS = {FLEET: (fleet, "fleet-"), BARE: (echo, "bare.")}
"""The function that runs each, and its namespace."""
AT_LEAST_OF_BARE = 0.6


@dataclass(frozen=True, slots=True)
class Line:
    """One contestant at one size: medians over the rounds. CPU in milliseconds per task, by group of processes."""

    name: str
    size: int
    tasks_per_s: float
    lowest: float
    highest: float
    cpu_ms: dict[str, float]
    missing: int


def compare(rounds: int, seconds: float) -> tuple[dict[str, Any], str]:
    """All that was found, as JSON and as a text."""
    taken: dict[tuple[int, str], list[Measured]] = {}
    with private_broker(threads_bound=True) as (url, broker_pid):
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            for name, (running, namespace) in CONTESTANTS.items():
                with running(url, namespace) as pids:
                    groups = {"broker": [broker_pid], "workers": list(pids.values())}
                    for size in SIZES:
                        measured = in_own_process(Round(url, namespace, size, seconds, groups))
                        taken.setdefault((size, name), []).append(measured)
    lines = {place: line(*place, measured) for place, measured in sorted(taken.items())}
    ratios = {size: lines[size, FLEET].tasks_per_s / lines[size, BARE].tasks_per_s for size in SIZES}
    bars = [{"size": size, "ratio": ratio, "met": ratio >= AT_LEAST_OF_BARE} for size, ratio in ratios.items()]
    found = {"machine": machine(), "lines": [asdict(one) for one in lines.values()], "bars": bars}
    heading = f"{found['machine']}\nmedians of {rounds} rounds of {seconds:.0f} s; 4 hops, 3 worker processes"
    return found, "\n".join([heading, "", table(list(lines.values())), "", *map(sentence, bars)])


def in_own_process(round_: Round) -> Measured:
    """The client as a process of its own, so that its CPU time can be told apart."""
    command = [sys.executable, "-m", "bench.pipeline.load", json.dumps(asdict(round_))]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Measured(**json.loads(run.stdout.splitlines()[-1]))


def line(size: int, name: str, rounds: Sequence[Measured]) -> Line:
    rates = [one.answered / one.seconds for one in rounds]
    cpu_ms = {group: median(1000 * one.cpu_s[group] / one.answered for one in rounds) for group in rounds[0].cpu_s}
    return Line(name, size, median(rates), min(rates), max(rates), cpu_ms, sum(one.missing for one in rounds))


def table(lines: Sequence[Line]) -> str:
    groups = list(lines[0].cpu_ms)
    heads = "".join(f"{f'{group}, CPU ms':>17}" for group in groups)
    rows = [f"{'':18}{'bytes':>6}{'tasks/s':>9}{'lowest':>8}{'highest':>8}{heads}{'lost':>6}"]
    for one in lines:
        cells = "".join(f"{one.cpu_ms[group]:17.2f}" for group in groups)
        rates = f"{one.tasks_per_s:9.0f}{one.lowest:8.0f}{one.highest:8.0f}"
        rows.append(f"{one.name:18}{one.size:6}{rates}{cells}{one.missing:6}")
    return "\n".join(rows)


def sentence(bar: dict[str, Any]) -> str:
    outcome = "met" if bar["met"] else "MISSED"
    return f"fleet over bare pika, {bar['size']} B: {bar['ratio']:.2f} (bar {AT_LEAST_OF_BARE}: {outcome})"
