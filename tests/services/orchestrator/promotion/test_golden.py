"""What keeps a candidate from traffic after it answered the golden set, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ratchet.service.errors import NotJudged
from schemas.messages.work import Arm, Sampling
from schemas.records.interaction import Interaction, Latencies
from services.orchestrator.promotion.golden import GoldenSummary, compare, is_refusal, summary

PARENT = GoldenSummary(tasks=20, answered=20, score=0.7, unscored=0.05, length=40.0, refused=0.1)
MARGIN = 0.05


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"score": 0.66},
        {"length": 79.0, "refused": 0.19, "unscored": 0.14},
        {"length": 21.0, "refused": 0.0, "unscored": 0.0},
    ],
)
def test_a_candidate_within_the_bounds_passes_with_its_figures(fine: dict[str, Any]) -> None:
    verdict = compare(replace(PARENT, **fine), PARENT, margin=MARGIN)

    assert verdict.passed
    assert "its parent's mean score 0.700, on 20 golden tasks" in verdict.reason
    assert verdict.evidence["margin"] == MARGIN


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"score": 0.64}, "mean score 0.640, more than 0.05 below its parent's 0.700"),
        ({"score": None, "unscored": 1.0}, "no score, more than 0.05 below its parent's 0.700"),
        ({"answered": 19}, "it answered 19 of 20 tasks, its parent 20"),
        ({"unscored": 0.3}, "30% of its answers got no score, of its parent's 5%"),
        ({"length": 81.0}, "its answers are 81 long on average, its parent's 40"),
        ({"length": 19.0}, "its answers are 19 long on average, its parent's 40"),
        ({"refused": 0.25}, "it refused or was silent 25% of the time, its parent 10%"),
    ],
)
def test_each_fault_is_a_sentence(fault: dict[str, Any], sentence: str) -> None:
    verdict = compare(replace(PARENT, **fault), PARENT, margin=MARGIN)

    assert not verdict.passed
    assert sentence in verdict.reason


def test_without_any_score_nothing_is_known_of_the_candidate() -> None:
    unscored = replace(PARENT, score=None, unscored=1.0)

    with pytest.raises(NotJudged, match="none of the 20 golden tasks got a scored answer"):
        compare(unscored, unscored, margin=MARGIN)


def test_where_the_parent_did_not_get_through_in_time_either_nothing_is_known_of_the_candidate() -> None:
    late = replace(PARENT, answered=12, expired=8)

    with pytest.raises(NotJudged, match="12 of the 20 golden tasks were answered by the parent, and 20 by"):
        compare(PARENT, late, margin=MARGIN)
    assert not compare(late, PARENT, margin=MARGIN).passed


def line(task: str, sample: int | None, response: str | None, score: float | None, tokens: int = 3) -> Interaction:
    return Interaction.model_validate(
        {
            "task_id": task,
            "input": "x",
            "response": response,
            "score": score,
            "agent_id": "small",
            "adapter_version": "v1.0.1",
            "timestamp": "2031-01-01T00:00:00Z",
            "metadata": {},
            "sample": sample,
            "group_size": 2,
            "arm": Arm(sequence=0),
            "sampling": Sampling(),
            "completion_ids": None if sample is None else range(tokens),
            "latencies": Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=0),
        }
    )


def test_the_summary_is_over_the_answers_and_a_task_without_one_counts_as_unanswered() -> None:
    tasks = [
        [line("a", 0, "abcd", 1.0, tokens=5), line("a", 1, "  ", 0.0, tokens=1)],
        [line("b", 0, "I'm sorry, but I can't help with that.", 0.5), line("b", 1, "dcba", None)],
        [line("c", None, None, None)],
    ]

    assert summary(tasks) == GoldenSummary(tasks=3, answered=2, score=0.5, unscored=0.25, length=3.0, refused=0.5)


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        ("", True),
        (" \n", True),
        ("I'm sorry, but I can't assist with that.", True),
        ("I’m afraid that is not possible.", True),
        ("**Sorry**, no.", True),
        ("As an AI language model, I have no opinion.", True),
        ("Unfortunately, I am not able to do this.", True),
        ("I cannot answer.", True),
        ("abcd", False),
        ("The clerk said: I'm sorry, we are closed.", False),
        ("I candied the oranges.", False),
        ("sorrynot", False),
    ],
)
def test_what_begins_as_a_refusal(answer: str, refuses: bool) -> None:
    assert is_refusal(answer) is refuses
