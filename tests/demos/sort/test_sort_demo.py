"""What measures the letters to sort is drawn apart, and its books miss nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from demos.books import Account, Measured
from demos.sort.demo import SIZES, SortDemo, samples_needed
from ratchet.experiments.gain import Answered
from ratchet.logs.rows import AnswerRow

ROWS = [AnswerRow(task_id=task, sample=sample, group_size=2) for task in "ab" for sample in (0, 1)]


@pytest.mark.parametrize(
    ("answered", "rows", "account"),
    [
        ({"a": "ok", "b": "ok"}, ROWS, Account(2, 0, 0, 0)),
        ({"a": "ok"}, ROWS[:2], Account(2, 1, 0, 0)),
        ({"a": "ok", "b": "failed"}, ROWS, Account(2, 0, 1, 0)),
        ({"a": "ok", "b": "ok"}, [*ROWS, ROWS[0]], Account(2, 0, 0, 1)),
    ],
)
def test_a_task_without_an_answer_is_lost_and_a_sample_with_two_lines_is_found(
    answered: dict[str, str], rows: list[AnswerRow], account: Account
) -> None:
    assert Measured({"a": 1, "b": 2}, answered, rows).account == account


def test_demo_tasks_are_held_out_different_and_the_same_for_a_seed() -> None:
    sizes = replace(SIZES, tasks=50)
    one, other = SortDemo(sizes=sizes, seed=3), SortDemo(sizes=sizes, seed=3)

    once, again = one.name_questions("before", one.held_out()), other.name_questions("before", other.held_out())

    assert all(task.held_out for task in once.values())
    assert len({task.input for task in once.values()}) == 50
    assert list(once.values()) == list(again.values())
    assert not set(once) & set(again), "ids are new each time"
    assert not set(once.values()) & set(one.golden())


def _answered(rng: random.Random, chance: float, tasks: int = 200, group: int = 8) -> dict[str, list[Answered]]:
    """Right with this chance, and scored for it, with some noise."""
    return {
        str(task): [
            (right + rng.gauss(0, 0.1), right) for right in (float(rng.random() < chance) for _ in range(group))
        ]
        for task in range(tasks)
    }


def test_fewer_samples_are_enough_once_single_answers_are_good() -> None:
    rng = random.Random(3)
    before, after = _answered(rng, 0.4), _answered(rng, 0.97)

    saved = samples_needed(before, after)

    assert (saved.group, saved.needed, saved.samples) == (8, 2, 6)
    assert saved.difference is not None
    assert saved.difference.low > -0.02


def test_nothing_is_saved_where_even_the_whole_group_is_not_as_good() -> None:
    rng = random.Random(3)

    saved = samples_needed(_answered(rng, 0.5), _answered(rng, 0.2))

    assert (saved.needed, saved.samples, saved.difference) == (None, 0, None)
    assert samples_needed({}, {}).needed is None
