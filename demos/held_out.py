"""Held-out tasks, which no model was trained on, through the fleet that is up; and the log's lines of them."""

from __future__ import annotations

import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from demos.held_out_report import HeldOutReport, is_right, report_held_out
from demos.toy.sort_task import SortTask, sort_task
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import DEAD_LETTERS
from ratchet.client import Fleet
from ratchet.experiments.gain import Answered
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import end_of_log, read_json
from ratchet.logs.rows import AnswerRow
from schemas.messages.base import Metadata
from schemas.messages.task import Task
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.queue_depths import queue_depths

MOST_OPEN = 32
"""Tasks in flight: enough to fill the agent's batches, so few that waiting does not drown the other latencies."""


@dataclass(frozen=True, slots=True)
class HeldOutPlan:
    """`seed` decides which tasks; `samples` is the group size."""

    tasks: int
    samples: int
    seed: int
    stall_s: float


def held_out_tasks(plan: HeldOutPlan) -> dict[str, SortTask]:
    """Different tasks by task id; ids are new at each run, so that nothing is answered from the index."""
    rng, run = random.Random(plan.seed), uuid.uuid4().hex[:8]
    drawn: dict[str, SortTask] = {}
    while len(drawn) < plan.tasks:
        task = sort_task(rng, held_out=True)
        drawn.setdefault(task.input, task)
    return {f"demo-{run}-{number:04}": task for number, task in enumerate(drawn.values())}


@dataclass(frozen=True, slots=True)
class HeldOutSample:
    """One answer to a held-out task. `right`: it is the known answer, which nobody in the fleet ever sees."""

    input: str
    adapter_version: str
    right: bool
    score: float | None


@dataclass(frozen=True, slots=True)
class HeldOutRun:
    report: HeldOutReport
    samples: tuple[HeldOutSample, ...]

    def right(self, version: str) -> dict[str, list[float]]:
        """By task, 1.0 for each right sample that this version gave, 0.0 for each wrong one."""
        return _by_task((sample.input, float(sample.right)) for sample in self._of(version))

    def scores(self, version: str) -> dict[str, list[float]]:
        """By task, the scores of this version's samples."""
        given = ((sample.input, sample.score) for sample in self._of(version))
        return _by_task((task, score) for task, score in given if score is not None)

    def answered(self, version: str) -> dict[str, list[Answered]]:
        """By task, the score of each of this version's samples, and whether it is right."""
        found: dict[str, list[Answered]] = defaultdict(list)
        for sample in self._of(version):
            found[sample.input].append((sample.score, float(sample.right)))
        return found

    def _of(self, version: str) -> Iterator[HeldOutSample]:
        return (sample for sample in self.samples if sample.adapter_version == version)


def ask_held_out(access: FleetAccess, plan: HeldOutPlan, advance: Callable[[], None]) -> HeldOutRun:
    """`advance` is called at each answer. Raises BusError, TimedOut, JournalError."""
    asked = held_out_tasks(plan)
    answers = {name: task.answer for name, task in asked.items()}
    measured = measure(access, list(_messages(asked, plan)), plan.stall_s, advance)
    rows = measured.rows
    report = report_held_out(
        answers, measured.answered, rows, seconds=measured.seconds, dead_letters=measured.dead_letters
    )
    return HeldOutRun(report, tuple(_sample(row, asked) for row in rows if row.sample is not None))


@dataclass(frozen=True, slots=True)
class Measured:
    """How many tasks; by task id the Result's status; the log's lines of them; what became dead letters meanwhile."""

    asked: int
    answered: dict[str, str]
    rows: list[AnswerRow]
    dead_letters: int
    seconds: float


def measure(access: FleetAccess, tasks: Sequence[Task], stall_s: float, advance: Callable[[], None]) -> Measured:
    """Ask them all and read what the log has of them. Raises as `ask_held_out`."""
    start = end_of_log(access.logs_dir, INTERACTIONS)
    letters = dead_letters(access)
    began = time.monotonic()
    answered: dict[str, str] = {}
    with Fleet(access.amqp_url, namespace=access.namespace, most_open=MOST_OPEN, stall_s=stall_s) as client:
        for result in client.batch(tasks):
            answered[result.task_id] = result.status
            advance()
    seconds = time.monotonic() - began
    rows = list(_rows(access.logs_dir, start, {task.task_id for task in tasks}))
    return Measured(len(tasks), answered, rows, dead_letters(access) - letters, seconds)


def _sample(row: AnswerRow, asked: Mapping[str, SortTask]) -> HeldOutSample:
    task = asked[row.task_id]
    return HeldOutSample(task.input, row.adapter_version, is_right(row, task.answer), row.score)


def _by_task(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for task, value in values:
        found[task].append(value)
    return found


def _messages(asked: dict[str, SortTask], plan: HeldOutPlan) -> Iterator[Task]:
    """Without their reference: what is right is not for the fleet to know."""
    for name, task in asked.items():
        about = Metadata(timestamp=datetime.now(UTC), source="ratchet demo")
        yield Task(task_id=name, input=task.input, metadata=about, samples=plan.samples, task_type="sort")


def _rows(logs_dir: Path, start: int, asked: Set[str]) -> Iterator[AnswerRow]:
    rows = (record.value for record in read_json(logs_dir, INTERACTIONS, AnswerRow, start))
    return (row for row in rows if row.task_id in asked)


def dead_letters(access: FleetAccess) -> int:
    with open_connection(access.amqp_url) as connection:
        depths = queue_depths(connection, access.topology, access.namespace)
    return sum(depth.messages or 0 for depth in depths if depth.name == DEAD_LETTERS)
