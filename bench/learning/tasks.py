"""The sort tasks of the comparison, split by their *answers*: what is held out is never the answer in any training.

Many orders of the same letters have one answer. Split by the question, nearly every held-out answer would also be
trained on; so whole answers are held out, from the models' first demonstrations on.
"""

from __future__ import annotations

import hashlib
import random

from demos.toy.sort_task import LENGTH, LETTERS, SortTask

HELD_OUT_SHARE = 0.25
HELD_OUT_TASKS = 1_000


def training_task(rng: random.Random) -> SortTask:
    return _task(rng, held_out=False)


def held_out_tasks(seed: int) -> list[SortTask]:
    """Return HELD_OUT_TASKS different tasks."""
    rng, found = random.Random(10_000 + seed), dict[str, SortTask]()
    while len(found) < HELD_OUT_TASKS:
        task = _task(rng, held_out=True)
        found[task.input] = task
    return list(found.values())


def is_held_out(answer: str) -> bool:
    return hashlib.sha256(answer.encode()).digest()[0] < HELD_OUT_SHARE * 256


def _task(rng: random.Random, *, held_out: bool) -> SortTask:
    while True:
        letters = "".join(rng.choice(LETTERS) for _ in range(LENGTH))
        task = SortTask(f"sort: {letters}", "".join(sorted(letters)))
        if is_held_out(task.answer) == held_out:
            return task
