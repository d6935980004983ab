"""Does the orchestrator's cost grow with the tasks it has seen? Its memory and CPU per task at marks on the way.

At each mark: its resident memory, and the CPU it takes for each of the tasks that follow. One fleet, one stream.
A machine's speed varies by more than what is looked for, so the CPU is set against that of the agent and the scorer in
the same seconds: they keep nothing, and what a task costs them cannot grow with those before.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.machine import machine
from bench.pipeline.contestants import fleet
from bench.pipeline.cpu import cpu_seconds, resident_mib
from bench.pipeline.load import Client, Round
from bench.rig import private_broker
from tests.acceptance.fleet import ORCHESTRATOR

MARKS = (1_000, 3_000, 10_000, 30_000, 100_000)
STRETCH = 2_000
AT_MOST_TIMES = 1.25
SIZE = 500


@dataclass(frozen=True, slots=True)
class Mark:
    """The fleet's memory in MiB after `tasks`, and CPU milliseconds for each of the next; and those of the others."""

    tasks: int
    memory_mib: float
    cpu_ms_per_task: float
    others_cpu_ms_per_task: float

    @property
    def relative(self) -> float:
        return self.cpu_ms_per_task / self.others_cpu_ms_per_task


def flat(tasks: int) -> tuple[dict[str, Any], str]:
    """All that was found, as JSON and as a text."""
    marks = [mark for mark in MARKS if mark <= tasks]
    with private_broker() as (url, _), fleet(url, "flat.") as pids:
        client = Client(Round(url, "flat.", SIZE, 0.0, {}))
        seen = [at_mark(client, pids, mark) for mark in marks]
        drain(client)
    bars = [
        bar("memory", seen[-1].memory_mib / seen[0].memory_mib),
        bar("CPU per task over the others'", seen[-1].relative / seen[0].relative),
    ]
    on = machine()
    found = {"machine": on, "marks": [asdict(mark) for mark in seen], "bars": bars}
    return found, "\n".join([on, *table(seen), *map(sentence, bars)])


def at_mark(client: Client, pids: Mapping[str, int], mark: int) -> Mark:
    it = pids[ORCHESTRATOR]
    groups = {"it": [it], "others": [pid for pid in pids.values() if pid != it]}
    wait_for(client, mark)
    memory, before, answered = resident_mib(it), cpu_seconds(groups), client.answered
    wait_for(client, answered + STRETCH)
    after, tasks = cpu_seconds(groups), client.answered - answered
    print(f"  {mark:9,} tasks: {memory:.0f} MiB", file=sys.stderr)
    its, others = (1000 * (after[name] - before[name]) / tasks for name in groups)
    return Mark(mark, memory, its, others)


def wait_for(client: Client, answered: int) -> None:
    while client.answered < answered:
        time.sleep(0.01)


def drain(client: Client) -> None:
    client.publishing = False
    wait_for(client, client.published)


def bar(what: str, ratio: float) -> dict[str, Any]:
    return {"what": what, "ratio": ratio, "bar": AT_MOST_TIMES, "met": ratio <= AT_MOST_TIMES}


def table(marks: list[Mark]) -> list[str]:
    rows = [
        f"{mark.tasks:12,}{mark.memory_mib:14.1f}{mark.cpu_ms_per_task:14.3f}{mark.others_cpu_ms_per_task:20.3f}"
        for mark in marks
    ]
    return [f"{'tasks seen':>12}{'memory, MiB':>14}{'CPU ms/task':>14}{'agent and scorer':>20}", *rows]


def sentence(bar: dict[str, Any]) -> str:
    outcome = "met" if bar["met"] else "MISSED"
    return f"{bar['what']}, last mark over first: {bar['ratio']:.2f} (at most {bar['bar']}: {outcome})"
