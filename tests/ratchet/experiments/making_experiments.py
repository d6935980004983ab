"""Units, experiments and traffic for the tests: small, seeded, and real."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ratchet.experiments.assignment import Assignment
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.unit import Enrolment, Outcome
from schemas.records.evidence import ExperimentPlan, RampStep

LEVELS = (0.35, 0.5, 0.65, 0.8)
HALF = (RampStep(share=0.5, candidate_units=0, open_candidates=1000),)


def plan(**changed: object) -> ExperimentPlan:
    return ExperimentPlan.model_validate({"experiment_id": "small-v1.0.1", "rule": 3, **changed})


def enrolment(sequence: int, *, is_candidate: bool = False, share: float = 0.5, **changed: object) -> Enrolment:
    fields: dict[str, object] = {
        "sequence": sequence,
        "unit_id": f"task-{sequence}",
        "in_session": False,
        "assignment": Assignment(is_candidate=is_candidate, propensity=share if is_candidate else 1.0 - share),
        "stratum": "",
        "at": float(sequence),
    }
    return Enrolment(**(fields | changed))  # type: ignore[arg-type]


@dataclass
class Traffic:
    """Tasks of four types, with scores around each type's level plus the candidate's effect."""

    effect: float = 0.0
    noise: float = 0.12
    failures: float = 0.0
    candidate_failures: float = 0.0
    length: float = 50.0
    candidate_length: float = 50.0
    candidate_endless: float = 0.0
    """Share of the candidate's answers that are eleven times as long."""
    candidate_latency_s: float = 1.0
    candidate_refused: float = 0.0
    is_choice: bool = False
    seed: int = 1
    scorer: str = "verifier@1"
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def outcome(self, index: int, *, is_candidate: bool) -> Outcome:
        failures = self.failures + self.candidate_failures * is_candidate
        if self.rng.random() < failures:
            return Outcome(succeeded=False)
        endless = is_candidate and self.candidate_endless > 0.0 and self.rng.random() < self.candidate_endless
        score = min(1.0, max(0.0, self.rng.gauss(LEVELS[index % 4] + self.effect * is_candidate, self.noise)))
        return Outcome(
            succeeded=True,
            score=score,
            served=score,
            is_choice=self.is_choice,
            length=self.rng.uniform(0.5, 1.5)
            * (self.candidate_length if is_candidate else self.length)
            * (11.0 if endless else 1.0),
            latency_s=self.rng.uniform(0.5, 1.5) * (self.candidate_latency_s if is_candidate else 1.0),
            refused=self.candidate_refused * is_candidate,
            scorer=self.scorer,
        )


def run(experiment: Experiment, traffic: Traffic, units: int, *, start: int = 0) -> Experiment:
    """One task after the other, each answered before the next is admitted."""
    for index in range(start, start + units):
        assignment = experiment.arm_for(f"task-{index}", in_session=False)
        if assignment is None:
            break
        experiment.enrol(
            Enrolment(index, f"task-{index}", False, assignment, f"type-{index % 4}", float(index)),
        )
        experiment.observe(index, traffic.outcome(index, is_candidate=assignment.is_candidate))
    return experiment
