"""What a real demo does with which numbers, and how long each stage takes. Pure.

The settings are those of any fleet but for what is named here; what a promotion must prove is as in any fleet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from demos.real.tasks import Family, RealTask, distinct_tasks, real_tasks
from schemas.messages.base import Metadata
from schemas.messages.task import Task

MODEL = "smollm2"
TEMPERATURE = 0.5
MAX_TOKENS: dict[Family, int] = {"order": 42, "date": 20}
"""A third more than a right answer has."""
GOLDEN_TASKS, GOLDEN_SAMPLES = 16, 2
PROOF_SAMPLES = 2
"""Answers to a task while a candidate is tried: a task is one observation, however many answers it has."""
MOST_OPEN = 16
GOOD_ENOUGH = 0.85
"""Share of full marks of the primary's answers to live traffic at which no further turn begins."""
TRAINING: Mapping[str, float | int] = {"learning_rate": 1e-3, "batch": 32, "epochs": 3}


def settings(seed: int, *, references: bool = False) -> dict[str, str]:
    """Return the fleet's settings. Users wait while the trainer works; it and the agent take the cores that are free.

    With `references` the references of users' tasks teach, by the trainer's own defaults; without them the fleet shows
    what the model learns from its own answers.
    """
    from_answers = {
        "RATCHET_TRAINER_HYPERPARAMETERS": json.dumps(dict(TRAINING)),
        "RATCHET_DEMONSTRATIONS": "",
    }
    return {
        "RATCHET_TEMPERATURE": str(TEMPERATURE),
        "RATCHET_MAX_TOKENS": str(max(MAX_TOKENS.values())),
        "RATCHET_AGENT_SEED": str(seed),
        "RATCHET_TRAIN_AFTER_GROUPS": "0",
        "RATCHET_EXPERIMENT_MAX_UNITS": "500",
        "RATCHET_EXPERIMENT_MIN_AGE_S": "0",
        "RATCHET_WATCH_SHARE": "0",
    } | ({} if references else from_answers)


@dataclass(frozen=True, slots=True)
class RealPlan:
    """`tasks` held-out ones, answered `samples` times each before and after; `group`: answers to one to learn from."""

    tasks: int
    samples: int
    group: int
    seed: int
    stall_s: float

    @property
    def held_out(self) -> list[RealTask]:
        return distinct_tasks("held_out", self.seed, self.tasks)

    @property
    def golden(self) -> list[Task]:
        """What the gate asks a candidate: of the part that is asked live, and of none that measures."""
        chosen = distinct_tasks("live", -self.seed - 1, GOLDEN_TASKS)
        return [message(task, f"golden-{number}", GOLDEN_SAMPLES) for number, task in enumerate(chosen)]

    def asked(self, tasks: Mapping[str, RealTask], version: str) -> list[Task]:
        """The held-out ones, without their answers: what is right is not for the fleet to know. They teach nothing."""
        hidden = {"reference": None, "adapter_version": version}
        return [message(task, name, self.samples).model_copy(update=hidden) for name, task in tasks.items()]

    def users(self, run: str) -> Iterator[Task]:
        """What is asked to learn from, without end."""
        return _named(real_tasks("train", self.seed), f"real-{run}-user", self.group)

    def judging(self, run: str) -> Iterator[Task]:
        """What is asked while a candidate is tried, without end."""
        return _named(real_tasks("live", self.seed), f"real-{run}-live", PROOF_SAMPLES)


def _named(tasks: Iterator[RealTask], prefix: str, samples: int) -> Iterator[Task]:
    return (message(task, f"{prefix}-{number:05}", samples) for number, task in enumerate(tasks))


def message(task: RealTask, task_id: str, samples: int) -> Task:
    """With what the graded scorer needs."""
    return Task(
        task_id=task_id,
        input=task.input,
        metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet demo --real"),
        reference=task.answer,
        criteria=task.criteria,
        samples=samples,
        max_tokens=MAX_TOKENS[task.family],
        task_type=task.family,
    )


def stages(plan: RealPlan, turns: int, groups: int) -> dict[str, float]:
    """In their order: about how many seconds each takes on two idle cores. The pace that is seen corrects them."""
    measuring = MEASURED_S * plan.tasks * plan.samples
    turn = {"collect": ANSWER_S * groups * plan.group, "train": TRAINED_S * groups * plan.group, "prove": PROVED_S}
    return {
        "start": 30.0,
        "before": measuring,
        **{f"{name} {number}": seconds for number in range(1, turns + 1) for name, seconds in turn.items()},
        "after": measuring,
    }


def further_turns(turns: int) -> list[tuple[str, ...]]:
    """The stages of each turn that comes only where there is time for it."""
    return [tuple(f"{name} {number}" for name in ("collect", "train", "prove")) for number in range(2, turns + 1)]


ANSWER_S = MEASURED_S = 0.25
TRAINED_S = 0.3
PROVED_S = 200.0
"""Of one answer, before training and after; of one answer trained on; of the live test."""
