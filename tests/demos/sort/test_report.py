"""The report of a demo is computed from the log's lines and the Results alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from demos.books import Measured
from demos.sort.demo import SIZES, SortDemo
from demos.sort.report import HeldOutReport, histogram, percentile, render_held_out, report_held_out
from demos.toy.sort_task import SortTask
from ratchet.logs.rows import AnswerRow

TASKS = {"a": SortTask("sort: cab", "abc"), "b": SortTask("sort: dbc", "bcd")}


def row(task: str, sample: int | None, response: str, score: float | None, total_s: float = 1.0) -> AnswerRow:
    latencies = {"queue_s": 0.1, "generate_s": 0.2, "score_queue_s": 0.1, "score_s": 0.1, "total_s": total_s}
    return AnswerRow(
        task_id=task,
        sample=sample,
        group_size=2,
        response=response,
        score=score,
        latencies=latencies,
        completion_ids=[1, 2, 3],
    )


GOOD = [
    row("a", 0, "acb", 0.1, total_s=1.0),
    row("a", 1, "abc ", 0.9, total_s=1.0),
    row("b", 0, "bcd", 0.8, total_s=3.0),
    row("b", 1, "bbb", None, total_s=3.0),
]


def report(rows: list[AnswerRow] = GOOD, answered: dict[str, str] | None = None, letters: int = 0) -> HeldOutReport:
    found = {"a": "ok", "b": "ok"} if answered is None else answered
    return report_held_out(Measured(TASKS, found, rows, letters, 2.0))


def test_best_of_the_group_is_set_beside_the_first_sample() -> None:
    found = report()

    assert (found.first.right, found.best.right, found.chance) == (0.5, 1.0, 0.5)
    assert found.first.mean_score == 0.45
    assert abs((found.best.mean_score or 0) - 0.85) < 1e-9


def test_a_sound_demo_lost_nothing() -> None:
    found = report()

    assert found.sound
    assert (found.tasks, found.answered, found.lost, found.samples, found.unscored, found.tokens) == (2, 2, 0, 4, 1, 12)


def test_a_task_without_an_answer_is_lost() -> None:
    found = report(GOOD[:2], {"a": "ok"})

    assert (found.lost, found.sound) == (1, False)


def test_a_sample_with_two_lines_is_found_and_counted_once() -> None:
    found = report([*GOOD, GOOD[0]])

    assert (found.logged_twice, found.samples, found.sound) == (1, 4, False)


def test_failed_tasks_and_dead_letters_are_not_sound() -> None:
    assert not report(answered={"a": "ok", "b": "failed"}).sound
    assert not report(letters=1).sound


def test_latencies_are_counted_once_a_task() -> None:
    total = report().latencies[-1]

    assert (total.stage, total.p50, total.max) == ("total_s", 3.0, 3.0)


def test_it_is_shown_even_where_nothing_came_back(tmp_path: Path) -> None:
    console = Console(width=100, record=True)

    console.print(render_held_out(report(), tmp_path / "log.jsonl"))
    console.print(render_held_out(report([], {}), tmp_path / "log.jsonl"))

    shown = console.export_text()
    assert "2 of 2 tasks" in shown
    assert "0 of 2 tasks" in shown


@given(st.lists(st.floats(0.0, 1.0)))
def test_every_score_is_in_the_histogram(scores: list[float]) -> None:
    assert sum(histogram(scores)) == len(scores)


@given(st.lists(st.floats(0.0, 1e6), min_size=1), st.floats(0.0, 1.0))
def test_a_percentile_is_one_of_the_values(values: list[float], q: float) -> None:
    assert percentile(values, q) in values


def test_demo_tasks_are_held_out_different_and_the_same_for_a_seed() -> None:
    sizes = replace(SIZES, tasks=50)
    one, other = SortDemo(sizes=sizes, seed=3), SortDemo(sizes=sizes, seed=3)

    once, again = one.name_questions("before", one.held_out()), other.name_questions("before", other.held_out())

    assert all(task.held_out for task in once.values())
    assert len({task.input for task in once.values()}) == 50
    assert list(once.values()) == list(again.values())
    assert not set(once) & set(again), "ids are new each time"
    assert not set(once.values()) & set(one.golden())
