"""The demo's three kinds of tasks: held-out ones that measure, golden ones for the gate, and what users ask. Pure.

Held-out and golden tasks are of the part that no model was trained on, and differ from each other; users ask of the
other part. So nothing that measures the gain is trained on, chosen by, or experimented with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Set
from datetime import UTC, datetime

from demos.toy.sort_task import SortTask, sort_task
from schemas.messages.base import Metadata
from schemas.messages.task import Task

GOLDEN_SEED = 7
TASK_TYPE = "sort"


def golden_tasks(count: int, *, without: Set[SortTask]) -> list[Task]:
    """One line each of an agent's golden.jsonl."""
    rng = random.Random(GOLDEN_SEED)
    drawn: dict[SortTask, None] = {}
    while len(drawn) < count:
        task = sort_task(rng, held_out=True)
        if task not in without:
            drawn[task] = None
    return [Task(task_id=f"golden-{number}", input=one.input, task_type=TASK_TYPE) for number, one in enumerate(drawn)]


def users_tasks(seed: int, run: str, *, samples: int) -> Iterator[Task]:
    """Without end, and without their answers: what is right is not for the fleet to know."""
    rng = random.Random(f"users {seed}")
    number = 0
    while True:
        asked = sort_task(rng, held_out=False)
        yield Task(
            task_id=f"demo-{run}-user-{number:05}",
            input=asked.input,
            metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet demo"),
            samples=samples,
            task_type=TASK_TYPE,
        )
        number += 1
