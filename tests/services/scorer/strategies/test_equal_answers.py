from __future__ import annotations

import pytest

from schemas.messages.reward import SampleScore
from services.scorer import metrics
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.scorer.strategies.verifier import is_repeated, score_distinct

GROUP = ScoringRequest("t-1", "What?", (Answer("a"), Answer("b"), Answer("a"), Answer("a", "length")))


class Counting:
    """Scores by the answer's letter, and a tenth more where it is asked again."""

    def __init__(self) -> None:
        self.asked: list[ScoringRequest] = []

    async def __call__(self, request: ScoringRequest) -> list[SampleScore]:
        self.asked.append(request)
        more = 0.1 if request.task_id.endswith("/again") else 0.0
        return [SampleScore(score=more + {"a": 0.2, "b": 0.6}[answer.text]) for answer in request.answers]


def saved() -> float:
    return _sample("ratchet_scorer_verdicts_saved_total", reason="equal")


def _sample(name: str, **labels: str) -> float:
    for metric in (metrics.verdicts_saved, metrics.verdict_difference):
        for family in metric.collect():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
    return 0.0


async def test_equal_answers_are_asked_about_once_and_share_the_score() -> None:
    scorer, before = Counting(), saved()

    scores = await score_distinct(GROUP, scorer)

    assert [score.score for score in scores] == [0.2, 0.6, 0.2, 0.2]
    assert [one.answers for one in scorer.asked] == [(Answer("a"), Answer("b"), Answer("a", "length"))]
    assert saved() - before == 1


async def test_anchors_get_a_verdict_each() -> None:
    scorer = Counting()
    fresh = ScoringRequest("t-1", "What?", GROUP.answers, fresh=True)

    await score_distinct(fresh, scorer, repeat_share=1.0)

    assert [one.answers for one in scorer.asked] == [GROUP.answers]


async def test_a_share_is_asked_twice_and_the_first_verdict_counts() -> None:
    scorer, before = Counting(), _sample("ratchet_scorer_verdict_difference_sum")

    scores = await score_distinct(GROUP, scorer, repeat_share=1.0)

    assert [score.score for score in scores] == [0.2, 0.6, 0.2, 0.2]
    assert [len(one.answers) for one in scorer.asked] == [3, 3]
    assert _sample("ratchet_scorer_verdict_difference_sum") - before == pytest.approx(0.3)


def test_the_share_is_kept_and_the_same_task_is_always_in_it_or_never() -> None:
    drawn = [is_repeated(f"t-{number}", 0.05) for number in range(4000)]
    assert 0.035 < sum(drawn) / len(drawn) < 0.065
    assert drawn == [is_repeated(f"t-{number}", 0.05) for number in range(4000)]
    assert not any(is_repeated(f"t-{number}", 0.0) for number in range(100))
