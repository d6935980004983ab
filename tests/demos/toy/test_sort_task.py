from __future__ import annotations

import random
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from demos.toy.sort_task import HELD_OUT_SHARE, LENGTH, LETTERS, SortTask, sort_task

ROOT = Path(__file__).parents[3]


@given(st.integers(), st.booleans())
def test_the_answer_is_the_letters_asked_for_in_order(seed: int, held_out: bool) -> None:
    task = sort_task(random.Random(seed), held_out=held_out)
    assert task.input.startswith("sort: ")
    assert list(task.answer) == sorted(task.input.removeprefix("sort: "))


def test_what_is_held_out_is_never_drawn_for_training() -> None:
    rng = random.Random(0)
    trained = {sort_task(rng, held_out=False) for _ in range(2000)}
    asked = {sort_task(rng, held_out=True) for _ in range(2000)}
    assert not trained & asked


def test_the_share_held_out_is_the_one_stated() -> None:
    tasks = [SortTask(f"sort: {number}", "") for number in range(10_000)]
    assert abs(sum(task.held_out for task in tasks) / len(tasks) - HELD_OUT_SHARE) < 0.02


def test_one_seed_gives_one_sequence_of_tasks() -> None:
    first, second = random.Random(7), random.Random(7)
    assert [sort_task(first, held_out=True) for _ in range(9)] == [sort_task(second, held_out=True) for _ in range(9)]


def test_what_the_docs_and_the_page_ask_the_small_model_is_what_it_was_trained_for() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "ratchet/page/static").rglob("*.js")]
    asked = [letters for page in pages for letters in re.findall(r"sort: (\w+)", page.read_text("utf-8"))]

    assert len(asked) > 10
    assert [letters for letters in asked if len(letters) != LENGTH or set(letters) - set(LETTERS)] == []
