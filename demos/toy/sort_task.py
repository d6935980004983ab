"""The demo's task, "sort: dbcae": an endless supply with known answers, some of it never used in training.

Pure. Training the models that solve it is demos/toy/make.py.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

LETTERS = "abcdefghij"
LENGTH = 5
HELD_OUT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class SortTask:
    """`input` is what the model is asked, `answer` the only right answer."""

    input: str
    answer: str

    @property
    def held_out(self) -> bool:
        """Tell by a hash of the letters asked for, so trainer and tester agree without a list."""
        first = hashlib.sha256(self.input.encode()).digest()[0]
        return first < HELD_OUT_SHARE * 256


def sort_task(rng: random.Random, *, held_out: bool) -> SortTask:
    """One task of the training part, or of the part that no model here was trained on."""
    while True:
        letters = "".join(rng.choice(LETTERS) for _ in range(LENGTH))
        task = SortTask(f"sort: {letters}", "".join(sorted(letters)))
        if task.held_out == held_out:
            return task
