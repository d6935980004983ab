"""What the tools demo does with which numbers, and how long each stage takes. Pure.

The settings are those of any fleet but for what is named here; what a promotion must prove is as in any fleet.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from demos.tools import in_sandboxes
from demos.toy.tools.task import Part, ToolTask, tool_task
from schemas.messages.base import Metadata
from schemas.messages.task import Task

MODEL = "tool-user"
MAX_TOKENS = 12
"""Of one answer of the model: twice what a call of a tool has."""
GOLDEN_TASKS, GOLDEN_SAMPLES = 24, 2
PROOF_SAMPLES = 1
"""Rollouts of a task while a candidate is tried: a task is one observation, however many it has."""
MOST_OPEN = 16
GOOD_ENOUGH = 0.85
"""Share of full marks of the primary's rollouts on live traffic at which no further turn begins."""
TRAINING: Mapping[str, float | int] = {"learning_rate": 2e-3, "epochs": 6}


def settings(seed: int) -> dict[str, str]:
    """Of the demo's fleet. Who reads what it needs takes more calls than who makes it up: longer is what is wanted."""
    return {
        "RATCHET_MAX_TOKENS": str(MAX_TOKENS),
        "RATCHET_AGENT_SEED": str(seed),
        "RATCHET_TRAINER_HYPERPARAMETERS": json.dumps(dict(TRAINING)),
        "RATCHET_TRAIN_AFTER_GROUPS": "0",
        "RATCHET_EXPERIMENT_MAX_UNITS": "2000",
        "RATCHET_EXPERIMENT_MIN_AGE_S": "0",
        "RATCHET_LENGTH_LIMIT": "1.5",
        "RATCHET_WATCH_SHARE": "0",
    }


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """`tasks` held-out ones, `samples` rollouts of each before and after; `group`: of one to learn from. `queue`:
    where who answers them takes its Work, on the wire; None where the fleet's runner does, in sandboxes."""

    tasks: int
    samples: int
    group: int
    seed: int
    stall_s: float
    queue: str | None

    @property
    def sandboxed(self) -> bool:
        return self.queue is None

    @property
    def held_out(self) -> list[ToolTask]:
        return self._distinct("held_out", "held-out", self.tasks)

    @property
    def blanked(self) -> list[ToolTask]:
        """The same, with tools that bring nothing."""
        return [replace(task, blanked=True) for task in self.held_out]

    @property
    def golden(self) -> list[Task]:
        """What the gate asks a candidate: none of those that measure."""
        chosen = self._distinct("train", "golden", GOLDEN_TASKS)
        return [self._message(task, f"golden-{number}", GOLDEN_SAMPLES) for number, task in enumerate(chosen)]

    def asked(self, tasks: Mapping[str, ToolTask], version: str, samples: int) -> list[Task]:
        """By task id, without their answers: what is right is not for the fleet to know. They teach nothing."""
        hidden = {"reference": None, "criteria": None, "adapter_version": version}
        return [self._message(task, name, samples).model_copy(update=hidden) for name, task in tasks.items()]

    def users(self, run: str) -> Iterator[Task]:
        """What is asked to learn from, without end."""
        return self._stream(f"tools-{run}-user", "users", self.group)

    def judging(self, run: str) -> Iterator[Task]:
        """What is asked while a candidate is tried, without end."""
        return self._stream(f"tools-{run}-live", "live", PROOF_SAMPLES)

    def _distinct(self, part: Part, purpose: str, count: int) -> list[ToolTask]:
        drawn: dict[int, ToolTask] = {}
        rng = random.Random(f"{purpose} {self.seed}")
        while len(drawn) < count:
            task = tool_task(rng, part)
            drawn[task.workspace] = task
        return list(drawn.values())

    def _stream(self, prefix: str, purpose: str, samples: int) -> Iterator[Task]:
        rng, number = random.Random(f"{purpose} {self.seed}"), 0
        while True:
            yield self._message(tool_task(rng, "train"), f"{prefix}-{number:05}", samples)
            number += 1

    def _message(self, task: ToolTask, task_id: str, samples: int) -> Task:
        """With what the graded scorer needs."""
        graded = in_sandboxes.message_fields(task) if self.sandboxed else {"reference": task.answer}
        return Task(
            task_id=task_id,
            input=task.input,
            metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet demo --tools"),
            samples=samples,
            task_type="tools",
            work_to=self.queue,
            **graded,
        )


def stages(plan: ToolPlan, turns: int, groups: int) -> dict[str, float]:
    """In their order: about how many seconds each takes on two idle cores. The pace that is seen corrects them."""
    rollout_s = in_sandboxes.ROLLOUT_S if plan.sandboxed else ROLLOUT_S
    measuring = rollout_s * plan.tasks * plan.samples
    turn = {
        "collect": rollout_s * groups * plan.group,
        "train": STARTED_S + TRAINED_S * groups * plan.group,
        "prove": PROVED_S + PROOF_TASKS * (rollout_s - ROLLOUT_S),
    }
    return {
        "start": 60.0,
        "before": measuring,
        **{f"{name} {number}": seconds for number in range(1, turns + 1) for name, seconds in turn.items()},
        "after": measuring,
        "blanked": measuring / plan.samples,
    }


def further_turns(turns: int) -> list[tuple[str, ...]]:
    """The stages of each turn that comes only where there is time for it."""
    return [tuple(f"{name} {number}" for name in ("collect", "train", "prove")) for number in range(2, turns + 1)]


ROLLOUT_S = 0.02
STARTED_S = 8.0
TRAINED_S = 0.01
PROVED_S = 15.0
"""Of one rollout; of a training before its first step, and of one rollout trained on; of the live test."""
PROOF_TASKS = 350
"""Rollouts that it takes, the gate's among them."""
