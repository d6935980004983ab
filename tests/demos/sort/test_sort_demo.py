"""What measures the letters to sort is drawn apart, and its books miss nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demos.books import Account, Measured
from demos.sort.demo import SIZES, SortDemo
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
