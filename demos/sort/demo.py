"""The demo of `ratchet demo`: letters to sort, scored by a bigger model, with a bad adapter at the end.

Held-out and golden tasks are of the part that no model was trained on, and differ from each other; users ask of the
other part. So nothing that measures the gain is trained on, chosen by, or experimented with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from demos.books import MOST_OPEN, Measured
from demos.demo import SOON, Demo, Sizes
from demos.story import DemoTurn, gain_faults
from demos.story_view import gains_table, heading
from demos.toy.sort_task import SortTask, sort_task
from ratchet.experiments.gain import (
    Answered,
    Estimate,
    Gain,
    estimate,
    format_interval,
    gain,
    served_gain,
    worth_of_best,
)
from ratchet.logs.rows import AnswerRow
from schemas.messages.task import Task
from services.cli.fleet.own_fleet import FleetPlace

SIZES = Sizes(tasks=200, samples=8, turns=2, groups=128, no_turn_after=180.0, timeout=180.0)
GOLDEN_SEED, GOLDEN_TASKS = 7, 32
MARGIN = 0.02
"""Loss of served quality that does not count."""


@dataclass(frozen=True, kw_only=True)
class SortDemo(Demo[SortTask]):
    folder, prefix, source = "demo", "demo", "ratchet demo"
    bad_adapter = True
    most_open = MOST_OPEN
    next_command = 'ratchet submit "sort: gbaec"'

    def settings(self, place: FleetPlace) -> dict[str, str]:
        """Return what makes the loop quick on tasks of five letters."""
        return {**SOON, "RATCHET_EXPERIMENT_MAX_UNITS": "1000"}

    def held_out(self) -> list[SortTask]:
        return _distinct(random.Random(self.seed), self.sizes.tasks)

    def golden(self) -> list[SortTask]:
        return _distinct(random.Random(GOLDEN_SEED), GOLDEN_TASKS, without=frozenset(self.held_out()))

    def learning(self) -> Iterator[SortTask]:
        rng = random.Random(f"users {self.seed}")
        while True:
            yield sort_task(rng, held_out=False)

    def fields(self, question: SortTask) -> dict[str, Any]:
        """Leave out the answer: a bigger model scores, and the fleet never sees what is right."""
        return {"input": question.input, "task_type": "sort"}

    def is_right(self, question: SortTask, row: AnswerRow) -> bool:
        return (row.response or "").strip() == question.answer

    def label(self, question: SortTask) -> str:
        return question.input

    def figures(self, measured: Mapping[str, Measured[SortTask]], turns: Sequence[DemoTurn], adapters: Path) -> Figures:
        before, after = measured["before"], measured["after"]
        samples = self._scores_by_task(before), self._scores_by_task(after)
        return Figures(
            verifier=gain(self.right_answers(before), self.right_answers(after)),
            judge=gain(*({task: [s for s, _ in had if s is not None] for task, had in one.items()} for one in samples)),
            served=served_gain(*samples),
            saved=samples_needed(*samples),
        )

    def _scores_by_task(self, measured: Measured[SortTask]) -> dict[str, list[Answered]]:
        """Return by task the score of each sample, and whether it is right."""
        found: dict[str, list[Answered]] = {}
        for question, row in measured.samples():
            found.setdefault(question.input, []).append((row.score, float(self.is_right(question, row))))
        return found


@dataclass(frozen=True, slots=True)
class Saved:
    """Samples of a group that are not needed any more for what `group` of the base model's gave."""

    group: int
    needed: int | None
    """Return how many of the primary's are as good, to within the margin; None: not even the whole group is."""
    difference: Estimate | None
    """Best of `needed` of the primary's less best of `group` of the base model's, paired by task."""

    @property
    def samples(self) -> int:
        return self.group - self.needed if self.needed is not None else 0


def samples_needed(before: Mapping[str, Sequence[Answered]], after: Mapping[str, Sequence[Answered]]) -> Saved:
    """The fewest samples whose best is proved no worse, by more than MARGIN, than the base model's best of a group.

    From the whole group down, until one is not proved: a fixed sequence of tests needs no correction for their number
    (Maurer, Hothorn and Lehmacher 1995).
    """
    both = [task for task, samples in before.items() if samples and after.get(task)]
    group = min((min(len(before[task]), len(after[task])) for task in both), default=0)
    served = [worth_of_best(before[task], group) for task in both]
    saved = Saved(group, None, None)
    for count in range(group, 0, -1):
        worth = [worth_of_best(after[task], count) for task in both]
        found = estimate([now - base for now, base in zip(worth, served, strict=True)])
        if found.low <= -MARGIN:
            break
        saved = Saved(group, count, found)
    return saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`verifier` and `judge`: the gain on held-out tasks from the base model to the primary, of a single sample.

    `served`: of the answer a user gets, the best-scored of the group, by the verifier; `saved`: the samples that this
    quality does not need any more.
    """

    verifier: Gain
    judge: Gain
    served: Gain
    saved: Saved

    def faults(self) -> Iterator[str]:
        return gain_faults(self.verifier, 0.0, "answers are right")

    def as_dict(self) -> Mapping[str, Any]:
        gains = {"verifier": self.verifier, "judge": self.judge, "served": self.served}
        return {
            "held_out": {name: found.as_dict() for name, found in gains.items()},
            "samples_saved": asdict(self.saved) | {"samples": self.saved.samples},
        }

    def tables(self, primary: str) -> Sequence[RenderableType]:
        note = (
            f"{self._savings(primary)} Means over {self.verifier.before.tasks} tasks, paired by task, normal "
            "approximation. Served is what a user gets, the best-scored of the group; single is one sample; both right "
            "or wrong by a verifier that nobody in the fleet has. The judge is the bigger model, whose scores of "
            "single samples the fleet learned from."
        )
        rows = {"served": self.served, "single": self.verifier, "judge": self.judge}
        title = heading("Held-out tasks, before and after (95 % confidence interval)")
        return title, gains_table(primary, rows, note)

    def _savings(self, primary: str) -> str:
        saved = self.saved
        if saved.needed is None or saved.difference is None:
            return f"No number of samples up to {saved.group} is proved as good as v1.0.0's best of {saved.group}."
        difference = format_interval(saved.difference, signed=True)
        return (
            f"The best of {saved.needed} of {primary} is proved as good as v1.0.0's best of {saved.group} "
            f"({difference}, margin {MARGIN}): {saved.samples} of {saved.group} samples saved."
        )


def _distinct(rng: random.Random, count: int, *, without: Set[SortTask] = frozenset()) -> list[SortTask]:
    drawn: dict[SortTask, None] = {}
    while len(drawn) < count:
        task = sort_task(rng, held_out=True)
        if task not in without:
            drawn[task] = None
    return list(drawn)


def users_tasks(seed: int, run: str, *, samples: int) -> Iterator[Task]:
    """Yield what users ask, without end."""
    return SortDemo(sizes=replace(SIZES, samples=samples), seed=seed, run=run).users()
