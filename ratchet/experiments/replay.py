"""An experiment again, from the registry's word on it and the logs: at a start after a kill, and to check a verdict.

What a replay needs is in the running experiment's parameters: its plan, and from which byte of each log on to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from pydantic import JsonValue

from ratchet.experiments.assignment import assign, candidate_share
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.logged import audit_of, ended_tasks, enrolment_of
from ratchet.experiments.records import position_of, replay_pooled
from ratchet.logs.names import ASSIGNMENTS, AUDITS, INTERACTIONS, POOLED
from ratchet.logs.reader import read
from ratchet.logs.rows import ArmedRow
from ratchet.logs.segments import refuse_removed
from schemas.messages.base import DecodeError
from schemas.messages.work import Work
from schemas.records.audit import AuditedTask
from schemas.records.decision import RunningExperiment
from schemas.records.evidence import ExperimentPlan
from schemas.records.interaction import Interaction


def parameters(plan: ExperimentPlan, positions: Mapping[str, int]) -> dict[str, JsonValue]:
    """Return the parameters of this plan's RunningExperiment. `positions`: log → byte at which it stood before the
    first unit.
    """
    return {"plan": plan.model_dump(mode="json"), "positions": dict(positions)}


def plan_of(running: RunningExperiment) -> ExperimentPlan:
    """Raises pydantic's ValidationError for parameters that are not of this version."""
    return ExperimentPlan.model_validate(running.parameters.get("plan"))


def replay_experiment(running: RunningExperiment, logs_dir: Path) -> Experiment:
    """The experiment as the logs tell it, bit for bit as it was live. Lines that can't be read are passed over."""
    return replayed_together([running], logs_dir)[running.experiment_id]


def replayed_together(
    experiments: Iterable[RunningExperiment],
    logs_dir: Path,
    secret_of: Callable[[RunningExperiment], str | None] = lambda _: None,
) -> dict[str, Experiment]:
    """Several, by id, in one pass over each log, from where the first of them began.

    `secret_of`: what an experiment that goes on draws by. The arms of the units in the logs are not drawn again.

    The log of interactions is read no further than to the last of their verdicts. Raises as `plan_of`; JournalError.
    """
    everything = list(experiments)
    known = {running.experiment_id: Experiment(plan_of(running), secret_of(running)) for running in everything}
    replay_pooled(everything, known, logs_dir)
    asked = [running for running in everything if position_of(running, POOLED) is None]
    state = {running.experiment_id: known[running.experiment_id] for running in asked}
    for work in _lines_of(Work, state, logs_dir, ASSIGNMENTS, _position(asked, ASSIGNMENTS)):
        state[str(work.arm.experiment_id)].enrol(enrolment_of(work))
    audited = [one for one in asked if (plan := state[one.experiment_id].plan).audit or plan.served]
    if audited:
        for line in _lines_of(AuditedTask, state, logs_dir, AUDITS, _position(audited, AUDITS)):
            state[str(line.arm.experiment_id)].audit(line.arm.sequence, audit_of(line))
    for arm, outcome in ended_tasks(
        _lines_of(Interaction, state, logs_dir, INTERACTIONS, _position(asked, INTERACTIONS))
    ):
        state[str(arm.experiment_id)].observe(arm.sequence, outcome)
    return known


def draw_again(running: RunningExperiment, secret: str, logs_dir: Path) -> tuple[int, str | None]:
    """Return how many units got the arm that the secret draws, and the first unit that did not. Raises as above."""
    state, met, right = {running.experiment_id: Experiment(plan_of(running))}, set[str](), 0
    for work in _lines_of(Work, state, logs_dir, ASSIGNMENTS, began_at(running, ASSIGNMENTS)):
        unit = enrolment_of(work)
        if unit.unit_id in met:
            continue
        met.add(unit.unit_id)
        if assign(running.experiment_id, unit.unit_id, candidate_share(unit.assignment), secret) != unit.assignment:
            return right, unit.unit_id
        right += 1
    return right, None


Logged = TypeVar("Logged", Work, Interaction, AuditedTask)


def _lines_of(
    type_: type[Logged], state: Mapping[str, Experiment], logs_dir: Path, log: str, start: int
) -> Iterator[Logged]:
    """The lines of experiments that have no verdict yet, to the end of the log or until all have one."""
    refuse_removed(logs_dir, log, start)
    peek = msgspec.json.Decoder(ArmedRow)
    undecided = set(state)
    for line in read(logs_dir, log, start):
        try:
            experiment_id = peek.decode(line.data).arm.experiment_id
            if experiment_id in undecided:
                yield type_.decode(line.data)
        except (msgspec.DecodeError, DecodeError):
            continue
        if experiment_id in undecided and state[experiment_id].final is not None:
            undecided.remove(experiment_id)
        if not undecided:
            return


def _position(experiments: Iterable[RunningExperiment], log: str) -> int:
    """Return where to begin to read a log: before the first unit of any of them."""
    return min((began_at(running, log) for running in experiments), default=0)


def began_at(running: RunningExperiment, log: str) -> int:
    """The byte at which a log stood before the experiment's first unit."""
    positions = running.parameters.get("positions")
    position = positions.get(log, 0) if isinstance(positions, dict) else 0
    return position if isinstance(position, int) else 0
