from __future__ import annotations

import pytest

from ratchet.bus.in_hand import NEVER
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.spec import parse_spec
from services.scorer.strategies.installed import Weighted
from services.scorer.strategies.strategy import Answer, NotApplicable, ScoringRequest
from tests.services.scorer.scripted import BROKEN, OK, SLOW, UNKNOWN, Scripted

SPEC = parse_spec("0.7*verifier:exact + 0.3*judge:absolute")
REQUEST = ScoringRequest("t-1", "What?", (Answer("a"), Answer("b")))


def identity(id: str, revision: str = "1", rubric: str | None = None) -> ScorerIdentity:
    return ScorerIdentity(id=id, revision=revision, rubric_sha256=rubric)


async def test_the_whole_is_the_weighted_sum_and_says_of_what() -> None:
    first = Scripted([SampleScore(score=1.0), SampleScore(score=0.0)])
    second = Scripted([SampleScore(score=0.5), SampleScore(score=1.0)])

    scores = await Weighted(SPEC, [first, second]).score(REQUEST)

    assert [score.score for score in scores] == pytest.approx([0.85, 0.3])
    assert scores[0].reason == "verifier:exact 1; judge:absolute 0.5"


async def test_equal_full_scores_never_add_up_to_more_than_one() -> None:
    spec = parse_spec(" + ".join(f"0.1*s{n}" for n in range(10)))
    parts = [Scripted([SampleScore(score=1.0)] * 2) for _ in range(10)]
    assert [score.score for score in await Weighted(spec, parts).score(REQUEST)] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("first", "second", "status", "reason"),
    [
        (OK, BROKEN, "infra_fail", "judge:absolute: server gone"),
        (SLOW, OK, "timeout", "verifier:exact: too slow"),
        (BROKEN, SLOW, "timeout", "verifier:exact: server gone; judge:absolute: too slow"),
        (UNKNOWN, BROKEN, "unscorable", "verifier:exact: no reference; judge:absolute: server gone"),
    ],
)
async def test_a_null_of_one_part_is_a_null_of_the_whole(
    first: SampleScore, second: SampleScore, status: str, reason: str
) -> None:
    scores = await Weighted(SPEC, [Scripted([first, OK]), Scripted([second, OK])]).score(REQUEST)
    assert (scores[0].score, scores[0].status, scores[0].reason) == (None, status, reason)
    assert scores[1].score == 0.5


NOT_MINE = NotApplicable(status="unscorable", reason="no Go here")


async def test_a_part_that_does_not_apply_leaves_its_weight_to_the_others() -> None:
    spec = parse_spec("0.5*verifier:exact + 0.3*style + 0.2*tokens:9")
    first = Scripted([SampleScore(score=0.5), SampleScore(score=1.0)])
    style, tokens = Scripted([NOT_MINE, SampleScore(score=0.5)]), Scripted([SampleScore(score=0.5)] * 2)

    without, with_it = await Weighted(spec, [first, style, tokens]).score(REQUEST)

    assert without.score == pytest.approx((0.25 + 0.1 * 0.5) / 0.7)
    assert without.parts == {"verifier:exact": 0.5, "tokens:9": 0.5}
    assert without.reason == "verifier:exact 0.5; style: no Go here; tokens:9 0.5"
    assert with_it.parts == {"verifier:exact": 1.0, "style": 0.5, "tokens:9": 0.5}


async def test_a_part_that_does_not_apply_makes_no_failure_good() -> None:
    scores = await Weighted(SPEC, [Scripted([NOT_MINE, NOT_MINE]), Scripted([BROKEN, NOT_MINE])]).score(REQUEST)

    assert [score.status for score in scores] == ["infra_fail", "unscorable"]


def test_a_change_in_any_part_is_another_scorer() -> None:
    def combined(*identities: ScorerIdentity) -> ScorerIdentity:
        return Weighted(SPEC, [Scripted([], each) for each in identities]).identity

    base = combined(identity("v"), identity("j", rubric="a" * 64))
    assert base.id == "0.7*verifier:exact + 0.3*judge:absolute"
    assert base == combined(identity("v"), identity("j", rubric="a" * 64))
    assert base != combined(identity("v", "2"), identity("j", rubric="a" * 64))
    assert base != combined(identity("v"), identity("j", rubric="b" * 64))


def test_a_long_specification_still_makes_a_valid_id() -> None:
    spec = parse_spec(" + ".join(f"python:package.module{n}:function" for n in range(9)))
    made = Weighted(spec, [Scripted([])] * 9).identity
    assert made.id.startswith("weighted:")


def test_a_step_of_any_part_is_a_step_of_the_whole() -> None:
    class Stepping(Scripted):
        def advanced_at(self) -> float:
            return 7.0

    assert Weighted(SPEC, [Scripted([]), Stepping([])]).advanced_at() == 7.0
    assert Weighted(SPEC, [Scripted([]), Scripted([])]).advanced_at() == NEVER


async def test_start_stop_and_trouble_reach_every_part() -> None:
    parts = [Scripted([]), Scripted([], trouble="the judge is away")]
    weighted = Weighted(SPEC, parts)
    await weighted.start()
    assert all(part.running for part in parts)
    assert weighted.trouble() == "the judge is away"
    await weighted.stop()
    assert not any(part.running for part in parts)
