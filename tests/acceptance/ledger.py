"""What a user was promised against what is in the logs and what came back: lost 0, logged twice 0, or it says who.

A task counts from the moment the broker confirmed it to the user. Read after the fleet is at rest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.logs.reader import read_json

ASSIGNMENTS, INTERACTIONS = "assignments", "agent_interactions"
SHOWN = 5


@dataclass
class Ledger:
    """Task ids by what happened to them. `answers` counts Results by task; more than one each is allowed."""

    attempted: set[str] = field(default_factory=set)
    publishes: int = 0
    """More than the tasks attempted: what was not confirmed is published again."""
    acknowledged: set[str] = field(default_factory=set)
    admitted: Counter[str] = field(default_factory=Counter)
    logged: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    group_sizes: dict[str, int] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    not_ok: dict[str, str] = field(default_factory=dict)
    """Tasks answered otherwise than `ok`, and why."""

    def read_logs(self, folder: Path) -> None:
        """Count the lines of both logs, read whole."""
        self.admitted = Counter(record.value["task_id"] for record in read_json(folder, ASSIGNMENTS, dict))
        self.logged = Counter()
        for record in read_json(folder, INTERACTIONS, dict):
            line = record.value
            self.logged[line["task_id"], line["sample"]] += 1
            self.group_sizes[line["task_id"]] = line["group_size"]

    @property
    def unlogged(self) -> set[str]:
        """Acknowledged, but not every sample of its group is in the log."""
        samples = Counter(task_id for task_id, sample in self.logged if sample is not None)
        return {task for task in self.acknowledged if samples[task] < max(self.group_sizes.get(task, 1), 1)}

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
    def unknown(self) -> set[str]:
        """In the log or answered, but never attempted."""
        return ({task for task, _ in self.logged} | set(self.answers)) - self.attempted

    def complaints(self) -> list[str]:
        """Sentences; none if the books balance."""
        return [
            f"{len(found)} {what}: {', '.join(map(str, sorted(found, key=str)[:SHOWN]))}"
            for what, found in (
                ("acknowledged but not wholly logged", self.unlogged),
                ("acknowledged but not answered", self.unanswered),
                ("logged twice", self.logged_twice),
                ("admitted twice", self.admitted_twice),
                ("never asked for", self.unknown),
                ("not answered with ok", {f"{task} ({why})" for task, why in self.not_ok.items()}),
            )
            if found
        ]

    def rows(self) -> dict[str, int]:
        """The books, by name."""
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
