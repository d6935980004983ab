"""The evidence of several fleets in one log, so that one experiment counts the units of all.

Each fleet logs what it does in its own folder; the one that decides copies what an experiment counts from all of these
into `logs/pooled_evidence.jsonl`. The order of that log is the order in which units count: whoever reads it comes to
the same experiment bit for bit, whichever fleet it is in. Leaves out who copies (services/orchestrator/promotion).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from ratchet.experiments.experiment import Experiment
from ratchet.experiments.unit import Audit, Enrolment, Outcome
from ratchet.logs.names import POOLED
from ratchet.logs.reader import read_json
from ratchet.logs.segments import Position
from schemas.records.decision import RunningExperiment

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
