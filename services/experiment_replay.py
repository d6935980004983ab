"""An experiment again, from the registry's word on it and the logs: at a start after a kill, and to check a verdict.

What a replay needs is in the running experiment's parameters: its plan, and from which byte of each log on to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from schemas.decision import RunningExperiment
from schemas.evidence import ExperimentPlan
from schemas.interaction import Interaction
from schemas.message import DecodeError
from schemas.work import Work
from services.experiment import Experiment
from services.experiment_log import replay
from services.journal_reader import read

ASSIGNMENTS = "assignments"
INTERACTIONS = "agent_interactions"


def parameters(plan: ExperimentPlan, positions: Mapping[str, int]) -> dict[str, JsonValue]:
    """For the RunningExperiment of this plan. `positions`: log → byte at which it stood before the first unit."""
    return {"plan": plan.model_dump(mode="json"), "positions": dict(positions)}


def plan_of(running: RunningExperiment) -> ExperimentPlan:
    """Raises pydantic's ValidationError for parameters that are not of this version."""
    return ExperimentPlan.model_validate(running.parameters.get("plan"))


def replayed(running: RunningExperiment, logs_dir: Path) -> Experiment:
    """The experiment as the logs tell it, bit for bit as it was live. Lines that can't be read are passed over."""
    works = _works(logs_dir, _position(running, ASSIGNMENTS))
    interactions = _interactions(logs_dir, _position(running, INTERACTIONS))
    return replay(plan_of(running), works, interactions)


def _position(running: RunningExperiment, log: str) -> int:
    positions = running.parameters.get("positions")
    position = positions.get(log, 0) if isinstance(positions, dict) else 0
    return position if isinstance(position, int) else 0


def _works(logs_dir: Path, start: int) -> Iterator[Work]:
    for line in read(logs_dir, ASSIGNMENTS, start):
        try:
            yield Work.decode(line.data)
        except DecodeError:
            continue


def _interactions(logs_dir: Path, start: int) -> Iterator[Interaction]:
    for line in read(logs_dir, INTERACTIONS, start):
        try:
            yield Interaction.decode(line.data)
        except DecodeError:
            continue
