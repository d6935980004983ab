"""What contestants solved: pass@k against a count of all draws, its interval, by language and level, and its cost."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import combinations
from pathlib import Path

import pytest

from ratchet.adapters.evaluations import all_evaluations, evaluations_of, write_evaluation
from ratchet.experiments.served import Z95
from ratchet.service.prices import AgentPrices
from schemas.records.evaluation import Evaluation, Solved
from schemas.records.registry import AdapterEntry, AgentAdapters
from services.cli.eval.asking import Asking, Contestant
from services.cli.eval.results import Asked, Group, Spent, Tried, count_solved, evaluate, pass_at, wilson
from services.cli.eval.task_set import Leaks, TaskSet, read_set
from services.cli.eval.view import picture, render_evaluation
from tests.ratchet.adapters.making_adapters import NOON

PRICES = AgentPrices(prompt=Decimal(1), sampled=Decimal(10), samples=1, max_tokens=1)
ASKING = Asking("set-1", "small", 2, 5.0)


def lines_of(folder: Path) -> TaskSet:
    tests = json.dumps({"tests": {"language": "rust", "cases": [{"command": ["./program"], "expected_text": "3"}]}})
    lines = [
        {"input": "add in Go", "language": "go", "level": "easy"},
        {"input": "sort in Go", "language": "go", "level": "hard"},
        {"input": "add in Rust", "criteria": tests, "level": "easy"},
        {"input": "sort in Rust", "criteria": tests, "level": "hard"},
    ]
    path = folder / "coding.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return read_set(path)


def evaluation(tasks: TaskSet, scores: dict[Contestant, list[list[float | None] | None]]) -> Evaluation:
    """Each answer took 1,000 prompt tokens, 100 sampled ones and 2 s."""
    spent = Spent(1_000, 100, 2.0)
    groups = [
        Group(
            Asked(of, one), None if given is None else [(score, score) for score in given], [spent] * len(given or ())
        )
        for number, one in enumerate(tasks.tasks)
        for of, given in ((of, some[number]) for of, some in scores.items())
    ]
    adapters = AgentAdapters(versions={"v1.0.0": AdapterEntry(version="v1.0.0", state="stable")})
    return evaluate(ASKING, tasks, groups, "tests 1", adapters, {"v1.0.0": Leaks()}, PRICES, NOON)


@pytest.mark.parametrize("answers", range(1, 8))
def test_pass_at_k_is_what_counting_all_draws_gives(answers: int) -> None:
    for right in range(answers + 1):
        for k in range(1, answers + 1):
            draws = list(combinations([True] * right + [False] * (answers - right), k))
            assert pass_at(k, answers, right) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_over_tasks_leaves_out_those_with_too_few_answers_and_counts_the_unanswered_as_unsolved() -> None:
    tried = [Tried(None, None, right) for right in ([True, False, False, False], [True, True], [])]

    (found,) = count_solved(tried, 4)

    rates = {one.k: (one.rate.mean, one.rate.tasks) for one in found.pass_at}
    assert rates == {1: (pytest.approx((0.25 + 1.0) / 3), 3), 2: (pytest.approx(0.5), 3), 4: (0.5, 2)}
    assert (found.tasks, found.answers, found.right) == (3, 6, 3)


def test_the_interval_solves_wilsons_equation_and_has_width_at_both_ends() -> None:
    found = wilson(0.7, 30)

    for end in (found.low, found.high):  # at both ends the mean lies 1.96 standard errors of that end away
        assert (found.mean - end) ** 2 == pytest.approx(Z95**2 * end * (1 - end) / 30)
    assert 0.0 == wilson(0.0, 25).low < wilson(0.0, 25).high < 0.2
    assert 0.8 < wilson(1.0, 25).low < wilson(1.0, 25).high == 1.0
    assert (wilson(0.0, 0).low, wilson(0.0, 0).high) == (0.0, 1.0)


def test_what_is_not_known_of_one_answer_is_not_added_up() -> None:
    known, unknown = Spent(10, 5, 1.0), Spent(10, 5, None)

    (found,) = count_solved([Tried(None, None, [True, False], [known, unknown])], 2)
    (never,) = count_solved([Tried(None, None, [False, False], [known, known])], 2)

    assert (found.tokens_per_solved, found.seconds_per_solved, found.cost_per_solved) == (30.0, None, None)
    assert never.tokens_per_solved is None


def test_programs_are_compared_by_task_and_counted_by_language_and_level(tmp_path: Path) -> None:
    first, second = Contestant("v1.0.0", "one-shot"), Contestant("v1.0.0", "tool-agent")
    right: list[float | None] = [1.0, 1.0]
    half: list[float | None] = [1.0, 0.9]

    found = evaluation(lines_of(tmp_path), {first: [half, half, half, None], second: [right, half, right, [None, 1.0]]})

    (compared,) = found.results
    assert (compared.program, compared.results[0].single.difference.tasks) == ("tool-agent", 3)
    assert compared.results[0].single.difference.mean == pytest.approx(0.1 / 3)
    kinds = {(one.language, one.level): one for one in found.versions[1].solved}
    assert list(kinds) == [(None, None), ("go", None), ("rust", None), (None, "easy"), (None, "hard")]
    assert [by_k(kinds[of]) for of in ((None, "easy"), (None, "hard"))] == [{1: 1.0, 2: 1.0}, {1: 0.75, 2: 1.0}]
    assert (found.versions[0].unanswered, found.versions[1].unscored) == (1, 1)
    whole = kinds[None, None]  # 8 answers, 6 of them right, at 1,000 · 1 + 100 · 10 millionths each
    assert (whole.right, whole.tokens_per_solved, whole.seconds_per_solved) == (6, 8 * 1_100 / 6, 16.0 / 6)
    assert whole.cost_per_solved == pytest.approx(8 * 0.002 / 6)


def by_k(one: Solved) -> dict[int, float]:
    return {part.k: part.rate.mean for part in one.pass_at}


def test_a_program_alone_is_shown_and_its_record_is_no_evaluation_of_the_version(tmp_path: Path) -> None:
    from rich.console import Console

    alone = evaluation(lines_of(tmp_path), {Contestant("v1.0.0", "tool-agent"): [[1.0, 0.0]] * 4})
    screen = Console(width=160, record=True, file=(tmp_path / "screen").open("w"))

    screen.print(render_evaluation(alone))
    path = write_evaluation(tmp_path, alone, picture(alone))

    text = " ".join(screen.export_text().split())
    assert "tool-agent v1.0.0 all 4 0.500 [0.150, 0.850] 1.000 [0.510, 1.000] 2,200 4.0 0.0040" in text
    assert Evaluation.decode(path.read_bytes()) == alone
    assert [one.name for one in all_evaluations(tmp_path, "small")] == [alone.name]
    assert evaluations_of(tmp_path, "small", "v1.0.0") == []


def test_a_program_is_asked_with_a_version_and_with_its_name_in_the_tasks_id(tmp_path: Path) -> None:
    one = lines_of(tmp_path).tasks[0]

    asked = ASKING.task(one, Contestant("v1.0.1", "tool-agent"), 7)

    assert (asked.programs, asked.adapter_version) == (("tool-agent",), "v1.0.1")
    assert asked.task_id == "evaluation/set-1/v1.0.1/tool-agent/7"
    assert ASKING.task(one, Contestant("v1.0.1"), 7).programs is None
