"""The figures: disagreement by order, agreement with people, and what sways a scorer that does not sway them."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.messages.reward import ScorerIdentity
from schemas.messages.work import Arm
from schemas.records.audit import AuditedTask, LoggedLabel, Shown
from services.orchestrator.auditing.agreement import (
    AuditBook,
    Labelled,
    calibration,
    kappa,
    pair_with_scores,
    rank_correlation,
    ranks,
)

NOON = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)


def line(judged: tuple[float | None, ...], scores: tuple[float | None, ...], number: int = 0) -> AuditedTask:
    return AuditedTask(
        task_id=f"t-{number}",
        agent_id="small",
        adapter_version="v1.0.0",
        arm=Arm(sequence=number),
        auditor=ScorerIdentity(id="auditor", revision="1"),
        scores=scores,
        judged=judged,
        timestamp=NOON,
    )


@pytest.mark.parametrize(
    ("judged", "audited", "discordance"),
    [
        ((0.1, 0.9), (0.0, 1.0), 0.0),
        ((0.9, 0.1), (0.0, 1.0), 1.0),
        ((0.5, 0.5), (0.0, 1.0), 0.5),
        ((0.1, 0.9), (1.0, 1.0), None),
        ((0.1, None), (0.0, 1.0), None),
        ((0.1, 0.9, 0.5), (0.0, 1.0, 0.9), 0.0),
        ((0.1, 0.9), (), None),
    ],
)
def test_disagreement_is_how_often_two_answers_are_ordered_differently(
    judged: tuple[float | None, ...], audited: tuple[float | None, ...], discordance: float | None
) -> None:
    book = AuditBook()
    book.add(line(judged, audited))

    assert book.latest is not None
    assert book.latest.discordance == discordance


def test_a_few_audits_are_no_disagreement_yet() -> None:
    book = AuditBook()
    for number in range(99):
        book.add(line((0.9, 0.1), (0.0, 1.0), number))
    before = book.discordance
    book.add(line((0.9, 0.1), (0.0, 1.0), 99))

    assert (before, book.discordance) == (None, 1.0)


def test_the_course_shows_when_they_part() -> None:
    book = AuditBook()
    for number in range(400):
        book.add(line((0.2, 0.8), (0.0, 1.0) if number < 200 else (1.0, 0.0), number))

    assert len(book.windows) == 20
    assert [one.discordance for one in book.windows] == [0.0] * 10 + [1.0] * 10


def test_audits_that_were_given_up_are_counted() -> None:
    book = AuditBook()
    book.add(line((0.9, 0.1), ()))
    book.add(line((0.9, 0.1), (1.0, 0.0)))

    assert book.unscored == 1


def labels(*, by_length: float, noise: float = 0.05, count: int = 200) -> list[Labelled]:
    """A scorer that gives people's score, and so much more for the longest answer."""
    rng = random.Random(5)
    found = []
    for _ in range(count):
        label, length = rng.random(), rng.random()
        score = label + by_length * length + rng.gauss(0, noise)
        found.append(Labelled(label=label, score=score, length=100 * length, position=rng.randrange(8)))
    return found


def test_a_scorer_that_likes_length_is_found_and_a_fair_one_is_not() -> None:
    fair, swayed = calibration(labels(by_length=0.0)), calibration(labels(by_length=0.3))

    assert fair.by_length is not None and fair.by_length.low <= 0 <= fair.by_length.high
    assert swayed.by_length is not None and swayed.by_length.low > 0.5
    assert swayed.by_position is not None and abs(swayed.by_position.value) < 0.25
    assert fair.rank is not None and fair.rank.low > 0.9


def test_of_a_pair_the_preferences_are_compared() -> None:
    shown = Shown(sample=2, length=300, judged=0.9, audited=0.2), Shown(sample=0, length=100, judged=0.4, audited=0.7)
    given_label = LoggedLabel(
        label_id="l", task_id="t", score=0.0, answer=shown[0], other=shown[1],
        agent_id="small", adapter_version="v1.0.0", given_by="ada", timestamp=NOON,
    )  # fmt: skip

    (judge,) = pair_with_scores([given_label], lambda one: one.judged, pairs=True)
    (auditor,) = pair_with_scores([given_label], lambda one: one.audited, pairs=True)

    assert judge == Labelled(label=0.0, score=1.0, length=200, position=2)
    assert auditor.score == 0.0
    assert pair_with_scores([given_label], lambda one: one.judged, pairs=False) == []


def test_kappa_is_the_share_agreed_beyond_chance() -> None:
    found = kappa(
        [True] * 45 + [False] * 15 + [True] * 25 + [False] * 15, [True] * 45 + [False] * 15 + [False] * 25 + [True] * 15
    )

    assert found is not None
    assert found.value == pytest.approx(0.1304, abs=0.001)  # Cohen's own example, 60 of 100 agreed
    assert kappa([True] * 9, [True] * 9) is None


def test_ranks_share_what_is_equal() -> None:
    assert ranks([0.2, 0.9, 0.2, 0.5]) == [1.5, 4.0, 1.5, 3.0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=5, max_size=30))
def test_a_rank_correlation_lies_in_its_interval_and_within_one(pairs: list[tuple[float, float]]) -> None:
    found = rank_correlation([x for x, _ in pairs], [y for _, y in pairs])

    assert found is None or -1 <= found.low <= found.value + 1e-5 <= found.high + 2e-5 <= 1.0001
