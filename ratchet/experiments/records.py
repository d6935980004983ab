"""Every experiment in the ledger of decisions: what began it, what ended it, and how. Pure.

The rules of the registry say when one ends, so they are asked: this is a fold over the same moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ratchet.adapters.registry_moves import apply
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.unit import Audit, Enrolment, Outcome
from ratchet.logs.names import POOLED
from ratchet.logs.reader import read_json
from ratchet.logs.segments import Position
from ratchet.service.errors import NotFound
from schemas.api.experiments import Ending, ExperimentSummary
from schemas.records.decision import Decision, RunningExperiment
from schemas.records.evidence import ExperimentDecision
from schemas.records.registry import Registry

MOST_FLEETS = 64


class PooledLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of one task of a fleet: that it was enrolled, how it ended, or its second verdict."""

    experiment_id: str
    fleet: int
    log: str
    """The fleet's log that tells it."""
    end: Position
    """The byte at which to go on reading that log: everything before it is pooled."""
    sequence: int
    """The task's number in its fleet."""
    enrolment: Enrolment | None = None
    outcome: Outcome | None = None
    audit: Audit | None = None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    def count_in(self, experiment: Experiment) -> None:
        """Report it to the experiment, under a number that no task of another fleet has."""
        number = pooled_number(self.sequence, self.fleet)
        if self.enrolment is not None:
            experiment.enrol(replace(self.enrolment, sequence=number))
        if self.audit is not None:
            experiment.audit(number, self.audit)
        if self.outcome is not None:
            experiment.observe(number, self.outcome)


def pooled_number(sequence: int, fleet: int) -> int:
    return sequence * MOST_FLEETS + fleet


def own_number(pooled: int, fleet: int) -> int | None:
    """Return the number that a task has in this fleet; None for a task of another."""
    return pooled // MOST_FLEETS if pooled % MOST_FLEETS == fleet else None


def position_of(running: RunningExperiment, name: str) -> Position | None:
    """Return where a log stood before the experiment's first unit; None where the experiment does not say."""
    positions = running.parameters.get("positions")
    position = positions.get(name) if isinstance(positions, dict) else None
    return position if isinstance(position, int) else None


def replay_pooled(experiments: Iterable[RunningExperiment], state: Mapping[str, Experiment], folder: Path) -> None:
    """Have these experiments count what the pooled log in the folder says. Raises JournalError."""
    starts = [start for one in experiments if (start := position_of(one, POOLED)) is not None]
    for record in read_json(folder, POOLED, PooledLine, min(starts, default=0)) if starts else ():
        if (experiment := state.get(record.value.experiment_id)) is not None:
            record.value.count_in(experiment)


RUNNING = "running"
REPLACED = "replaced"
"""Ended by a move that says nothing of it, such as a promotion by hand in the middle of a probation."""


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """`running` is the experiment as it began: its share is that of the first step."""

    agent_id: str
    running: RunningExperiment
    began: Decision
    ended: Decision | None = None
    outcome: str = RUNNING

    @property
    def experiment_id(self) -> str:
        return self.running.experiment_id

    @property
    def verdict(self) -> ExperimentDecision | None:
        """The decision that ended it, as it is in the ledger; None for one that runs, or that something else ended."""
        evidence = self.ended.evidence if self.ended else {}
        own = evidence.get("experiment_id") == self.experiment_id and "verdict" in evidence
        return ExperimentDecision.model_validate(evidence) if own else None

    def summary(self) -> ExperimentSummary:
        """Return what the API shows."""
        ended = self.ended
        return ExperimentSummary(
            experiment_id=self.experiment_id,
            agent_id=self.agent_id,
            kind=self.running.kind,
            of=self.running.contest,
            treatment=self.running.arms[0],
            control=self.running.arms[1],
            outcome=self.outcome,
            began_at=self.began.at,
            began_by_decision=self.began.sequence,
            ended=ended and Ending(decision=ended.sequence, at=ended.at, by=ended.who, reason=ended.reason),
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "experiment_id": self.experiment_id,
            "agent_id": self.agent_id,
            "kind": self.running.kind,
            "of": self.running.contest,
            "treatment": self.running.arms[0],
            "control": self.running.arms[1],
            "outcome": self.outcome,
            "began": {"decision": self.began.sequence, "at": self.began.at.isoformat()},
            "ended": self.ended
            and {
                "decision": self.ended.sequence,
                "at": self.ended.at.isoformat(),
                "by": self.ended.who,
                "reason": self.ended.reason,
            },
        }


class ExperimentFold:
    """Decisions in, in their order; experiments by id, in the order they began."""

    def __init__(self) -> None:
        self._registry = Registry()
        self.records: dict[str, ExperimentRecord] = {}

    def add(self, decision: Decision) -> None:
        """Raises NotAllowed for a ledger that breaks the rules of the registry."""
        before = {one.experiment_id for one in self._registry.agent(decision.agent_id).running}
        self._registry = apply(self._registry, decision)
        after = {one.experiment_id: one for one in self._registry.agent(decision.agent_id).running}
        for ended in before - after.keys():
            record = self.records[ended]
            self.records[ended] = replace(record, ended=decision, outcome=_outcome(self._registry, record))
        for began in after.keys() - before:
            self.records[began] = ExperimentRecord(decision.agent_id, after[began], decision)


def experiments(decisions: Iterable[Decision]) -> list[ExperimentRecord]:
    """Return them in the order they began. Raises NotAllowed for a ledger that breaks the rules of the registry."""
    fold = ExperimentFold()
    for decision in decisions:
        fold.add(decision)
    return list(fold.records.values())


def choose_record(
    records: Sequence[ExperimentRecord], experiment_id: str | None, agent_id: str | None
) -> ExperimentRecord:
    """The one of this id; else of the agent's (or anyone's) the running one, else the one that ended last.

    A watch without harm gives way to what made its version the primary. Raises NotFound.
    """
    theirs = [record for record in records if agent_id in (None, record.agent_id)]
    if experiment_id is not None:
        named = [record for record in theirs if record.experiment_id == experiment_id]
        if not named:
            raise NotFound(f"no experiment {experiment_id!r}: ratchet experiment list")
        return named[0]
    if not theirs:
        whose = f"agent {agent_id} has" if agent_id else "there is"
        raise NotFound(f"{whose} no experiment yet: one begins by itself after `ratchet train` made a new adapter")
    tried = [
        record for record in theirs if record.running.kind == "canary" or record.outcome == "rolled_back"
    ] or theirs
    running = [record for record in tried if record.ended is None]
    return running[-1] if running else max(tried, key=lambda record: record.ended.sequence if record.ended else 0)


def _outcome(registry: Registry, record: ExperimentRecord) -> str:
    agent, (treated, _) = registry.agent(record.agent_id), record.running.arms
    outcomes = agent.contest(record.running.contest).entries[treated].outcomes
    return next((one.verdict for one in outcomes if one.experiment_id == record.experiment_id), REPLACED)
