"""A comparison of the tasks that the broker confirmed with the logs and the Results: lost, logged twice, and which.

It reads the logs of a fleet at rest from outside: it knows their names and that they hold JSON, and imports nothing of
the fleet.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

LOGS = ASSIGNMENTS, INTERACTIONS = "assignments", "agent_interactions"
SHOWN = 5


@dataclass
class Ledger:
    """Task ids by what happened to them. `answers` counts Results by task; more than one each is allowed."""

    attempted: set[str] = field(default_factory=set)
    publishes: int = 0
    """Publishes, more than tasks: those without a confirm are repeated."""
    acknowledged: set[str] = field(default_factory=set)
    admitted: Counter[str] = field(default_factory=Counter)
    logged: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    group_sizes: dict[str, int] = field(default_factory=dict)
    numbers: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Tasks by the number of their assignment."""
    epochs: dict[str, int] = field(default_factory=dict)
    fenced_off: set[str] = field(default_factory=set)
    """Tasks with a line by an orchestrator after its successor's first line."""
    answers: Counter[str] = field(default_factory=Counter)
    told: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The statuses of each task's Results: there must be one."""
    may_expire: set[str] = field(default_factory=set)
    not_ok: dict[str, str] = field(default_factory=dict)
    """Tasks answered otherwise than `ok`, and why."""

    def read_logs(self, folder: Path) -> None:
        """Count the lines of both logs, read whole."""
        self.admitted, self.numbers, self.logged = Counter(), defaultdict(set), Counter()
        for line in lines(folder, ASSIGNMENTS):
            self._note_epoch(ASSIGNMENTS, line)
            self.admitted[line["task_id"]] += 1
            if "arm" in line:
                self.numbers[line["arm"]["sequence"]].add(line["task_id"])
        for line in lines(folder, INTERACTIONS):
            self._note_epoch(INTERACTIONS, line)
            self.logged[line["task_id"], line["sample"]] += 1
            self.group_sizes[line["task_id"]] = max(line["group_size"], self.group_sizes.get(line["task_id"], 0))

    def _note_epoch(self, log: str, line: dict[str, Any]) -> None:
        epoch, newest = line.get("epoch") or 0, self.epochs.get(log, 0)
        self.epochs[log] = max(epoch, newest)
        if epoch < newest:
            self.fenced_off.add(line["task_id"])

    @property
    def unlogged(self) -> set[str]:
        """Acknowledged tasks for which the log has neither all samples of the group nor an end without samples."""
        samples = Counter(task_id for task_id, sample in self.logged if sample is not None)
        return {
            task
            for task in self.acknowledged
            if samples[task] < self.group_sizes.get(task, 1) or not (samples[task] or self.logged[task, None])
        }

    @property
    def unanswered(self) -> set[str]:
        return {task for task in self.acknowledged if not self.answers[task]}

    @property
    def lost(self) -> set[str]:
        return self.unlogged | self.unanswered

    @property
    def logged_twice(self) -> set[tuple[str, int | None]]:
        return {key for key, count in self.logged.items() if count > 1}

    @property
    def admitted_twice(self) -> set[str]:
        return {task for task, count in self.admitted.items() if count > 1}

    @property
    def numbered_twice(self) -> set[int]:
        return {number for number, tasks in self.numbers.items() if len(tasks) > 1}

    @property
    def told_otherwise(self) -> set[str]:
        return {f"{task} ({', '.join(sorted(told))})" for task, told in self.told.items() if len(told) > 1}

    @property
    def unknown(self) -> set[str]:
        """Tasks in the log or answered, but never attempted."""
        return ({task for task, _ in self.logged} | set(self.answers)) - self.attempted

    def complaints(self) -> list[str]:
        """Return a sentence for each kind of fault."""
        return [
            f"{len(found)} {what}: {', '.join(map(str, sorted(found, key=str)[:SHOWN]))}"
            for what, found in (
                ("acknowledged but not wholly logged", self.unlogged),
                ("acknowledged but not answered", self.unanswered),
                ("logged twice", self.logged_twice),
                ("admitted twice", self.admitted_twice),
                ("assigned one number", self.numbered_twice),
                ("written by an orchestrator that was superseded", self.fenced_off),
                ("told more than one status", self.told_otherwise),
                ("never asked for", self.unknown),
                ("not answered with ok", {f"{task} ({why})" for task, why in self.not_ok.items()}),
            )
            if found
        ]

    def rows(self) -> dict[str, int]:
        """Return the figures by name."""
        return {
            "attempted": len(self.attempted),
            "publishes, repeats included": self.publishes,
            "acknowledged by the broker": len(self.acknowledged),
            "admitted": len(self.admitted),
            "samples logged": len(self.logged),
            "answered": len(self.answers),
            "answers, repeats included": self.answers.total(),
            "lost": len(self.lost),
            "logged twice": len(self.logged_twice),
            "admitted twice": len(self.admitted_twice),
        }


def lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log: its sealed segments, compressed or not, then the active file's whole lines.

    Raises ValueError where bytes of it are missing.
    """
    end = 0
    for path in sorted(folder.glob(f"{name}-*-*.jsonl*")):
        start, stop = map(int, path.name.removeprefix(f"{name}-").partition(".")[0].split("-"))
        if stop > end:
            if start != end:
                raise ValueError(f"{name}: bytes {end:,} to {start:,} are gone")
            yield from _parsed(path)
            end = stop
    yield from _parsed(folder / f"{name}.jsonl")


def _parsed(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read() if path.suffix == ".zst" else file.read()
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)
