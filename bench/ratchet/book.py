"""The rounds that are done: a line each in rounds.jsonl, so that a command goes on where it was left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from schemas.records.decision import Decision, Promote
from schemas.records.registry import AgentAdapters, EntryState

BEFORE_ITS_VERDICT = (EntryState.TRAINED, EntryState.VALIDATED, EntryState.CANARY)
HELD = "held"
"""Outcome of a round in which no version came to a verdict, because the fleet does not trust its judge; after any such
round a person says `reanchor`."""


@dataclass(frozen=True, slots=True)
class Round:
    """`outcome`: promoted, held, or in what state the version ended; `decisions`: what was decided, with reasons."""

    number: int
    events: list[str]
    version: str | None
    outcome: str
    reason: str
    before: str
    primary: str
    tasks: int
    samples_now: int
    samples_saved: int
    tokens_saved: int
    seconds: float
    decisions: list[list[str]] = field(default_factory=list)

    @property
    def promoted(self) -> bool:
        return self.outcome == "promoted"


class Book:
    """The rounds that are done, a line each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "rounds.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self.rounds = [Round(**json.loads(line)) for line in lines]

    def keep(self, done: Round) -> None:
        self.rounds.append(done)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(done)) + "\n")


def outcome_of(version: str | None, now: AgentAdapters, decisions: Sequence[Decision]) -> str:
    """Return the outcome of a round, and of the version tried in it, by the state at its end."""
    if version is None:
        return HELD if now.distrusted else "refused"
    state = now.versions[version].state
    if now.distrusted and state in BEFORE_ITS_VERDICT:
        return HELD
    was_promoted = any(isinstance(one.move, Promote) and one.move.version == version for one in decisions)
    return "promoted" if was_promoted and state is EntryState.STABLE else str(state)
