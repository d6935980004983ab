"""Rounds in which the contestants take turns on one private broker, so that a busy minute hits them alike.

It times whole processes on the machine it runs on and says nothing of any other; only the ratios travel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.pipeline.contestants import CONTESTANTS, Contestant, running
from bench.pipeline.hops import Wiring
from bench.pipeline.load import Measured, Round
from bench.pipeline.report import Line, line, notes, table, verdicts
from tests.private_broker import PrivateBroker

SIZES = (500, 4096)

Rounds = dict[tuple[str, int], list[Measured]]


def compare(given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """All that was found, as JSON and as a text."""
    rounds: Rounds = {}
    with private_broker(threads_bound=not given.unbound) as (url, broker_pid):
        for number in range(given.rounds):
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
            for contestant in select_contestants(given.only):
                turn(contestant, url, broker_pid, given, rounds)
    lines = [line(name, size, taken) for (name, size), taken in sorted(rounds.items(), key=lambda item: item[0][1])]
    bars = [bar for size in given.size for bar in verdicts([one for one in lines if one.size == size])]
    on = machine()
    found = {"machine": on, "lines": [asdict(one) for one in lines], "bars": bars}
    broker = "threads not bound to cores, as `ratchet up` starts it" if given.unbound else "as RabbitMQ ships"
    heading = (
        f"{on}\nmedians of {given.rounds} rounds of {given.seconds:.0f} s; 4 hops, 3 worker processes; broker: {broker}"
    )
    return found, "\n".join([heading, *tables(lines, given.size), "", *map(sentence, bars), "", notes()])


def select_contestants(only: str | None) -> list[Contestant]:
    wanted = tuple(name.strip().lower() for name in only.split(",")) if only else ("",)
    return [one for one in CONTESTANTS if one.name.lower().startswith(wanted)]


@contextmanager
def private_broker(*, threads_bound: bool = False) -> Iterator[tuple[str, int]]:
    """A node of this run's own; its URL and process id."""
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-broker-") as folder:
        broker = PrivateBroker.on_free_ports(Path(folder), threads_bound=threads_bound)
        node = broker.start()
        try:
            broker.wait_until_ready(node)
            yield broker.url, node.pid
        finally:
            broker.stop(node)


def turn(contestant: Contestant, url: str, broker_pid: int, given: argparse.Namespace, rounds: Rounds) -> None:
    """One contestant's workers, started afresh; every size once."""
    with running(contestant, url) as pids:
        for size in given.size:
            groups = {"broker": [broker_pid], "workers": pids}
            measured = in_own_process(Round(url, contestant.namespace, size, given.seconds, groups))
            rounds.setdefault((contestant.name, size), []).append(measured)
            rate = measured.answered / measured.seconds
            print(f"  {contestant.name:18}{size:6} B{rate:8.0f} tasks/s", file=sys.stderr)


def in_own_process(round_: Round) -> Measured:
    """The client as a process of its own, so that its CPU time can be told apart."""
    run = subprocess.run(
        [sys.executable, "-m", "bench.pipeline.load", json.dumps(asdict(round_))],
        env={**os.environ, **Wiring(round_.url, round_.namespace, "").environment()},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return Measured(**json.loads(run.stdout.splitlines()[-1]))


def tables(lines: list[Line], sizes: list[int]) -> list[str]:
    return [f"\n{size}-byte tasks\n{table([one for one in lines if one.size == size])}" for size in sizes]


def sentence(bar: dict[str, Any]) -> str:
    outcome = "met" if bar["met"] else "MISSED"
    return f"fleet over {bar['over']}, {bar['size']} B: {bar['ratio']:.2f} (bar {bar['bar']}: {outcome})"
