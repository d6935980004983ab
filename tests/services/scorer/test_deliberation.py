"""What a deliberation asks of the scorer: what is scored by the deadline, the judge's order, nobody about nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.bus.topology import REWARDS, fleet_topology
from ratchet.service.errors import Retry, ScorerError
from schemas.messages.response import Response, Sample, Usage
from schemas.messages.reward import Reward, SampleScore
from schemas.messages.work import Arm, Sampling, Work
from services.scorer.deliberation import BEHIND, FINALISTS, JudgesOrder, finalists
from services.scorer.settings import ScorerSettings
from services.scorer.spec import parse_spec
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.judge import Judge
from services.scorer.strategies.strategy import Answer, ScoringRequest, scores_one_by_one
from services.scorer.worker import ScorerWorker
from tests.memory_bus import MemoryBus
from tests.services.scorer.scripted import BROKEN, OK, Scripted
from tests.services.scorer.test_lateness import START, bus_delivery, simulated, steady, wall


class Slowly(Scripted):
    """An answer takes as many seconds as it says, and is worth a tenth of them."""

    one_by_one = True

    def __init__(self) -> None:
        super().__init__(())
        self.asked: list[str] = []
        self.at_work = 0

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        self.asked += [answer.text for answer in request.answers]
        self.at_work += 1
        try:
            await asyncio.sleep(max(float(answer.text) for answer in request.answers))  # simulated
        finally:
            self.at_work -= 1
        return [SampleScore(score=float(answer.text) / 10) for answer in request.answers]


class Preferring:
    """A judge that gives what it is told to, or none, after so many seconds."""

    def __init__(self, gives: Mapping[str, float] | None, seconds: float = 0.0) -> None:
        self.gives = gives
        self.seconds = seconds
        self.seen: list[str] = []

    async def compare(self, request: ScoringRequest, answers: Sequence[Answer]) -> list[float] | None:
        self.seen = [answer.text for answer in answers]
        await asyncio.sleep(self.seconds)  # simulated
        return None if self.gives is None else [self.gives[answer.text] for answer in answers]


def response(*texts: str, select: str | None, within_s: float = 5.0, **statuses: Any) -> Response:
    work = Work(
        task_id="t",
        input="x",
        agent_id="small",
        deadline=START.replace(second=int(within_s)),
        admitted_at=START,
        arm=Arm(sequence=0),
        sampling=Sampling(n=len(texts)),
        select=select,
    )
    samples = tuple(Sample(text=text, status=statuses.get(f"s{at}")) for at, text in enumerate(texts))
    return Response(task_id="t", response=texts[0], agent_id="small", samples=samples, work=work)


async def reward_of(
    given: Response, strategy: Any, judge: Preferring | None = None, **settings: Any
) -> tuple[Reward, float]:
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    order = JudgesOrder(judge) if judge else None  # type: ignore[arg-type]
    worker = ScorerWorker(ScorerSettings(**settings), bus, strategy, order=order, wall=wall, seconds=steady)
    await worker.handle(bus_delivery(given))
    (published,) = bus.deliveries_published(REWARDS)
    return Reward.decode(published.body), steady()


def test_what_is_scored_by_the_deadline_is_told_before_it_and_the_rest_is_not_waited_for() -> None:
    strategy = Slowly()

    reward, at = simulated(reward_of(response("1", "9", "3", "9", "8", select="best"), strategy))

    assert [score.score for score in reward.scores] == [0.1, None, 0.3, None, None]
    assert {score.status for score in reward.scores if score.score is None} == {"timeout"}
    assert at == 4.5
    assert sorted(strategy.asked) == ["1", "3", "8", "9", "9"], "equal answers together"
    assert strategy.at_work == 0, "what is too late is called off"


def test_a_scorer_that_compares_is_not_waited_for_beyond_the_deadline_either() -> None:
    strategy = Slowly()
    strategy.one_by_one = False

    late, at = simulated(reward_of(response("1", "9", select="best"), strategy))
    whole, _ = simulated(reward_of(response("1", "2", select="best"), strategy))

    assert [(score.score, score.status) for score in late.scores] == [(None, "timeout")] * 2
    assert (at, strategy.at_work) == (4.5, 0)
    assert [score.score for score in whole.scores] == [0.1, 0.2]


def test_a_scorer_that_failed_is_asked_again_only_where_that_comes_before_the_deadline() -> None:
    late, _ = simulated(reward_of(response("1", select="best", within_s=5), Scripted([BROKEN])))

    assert [score.status for score in late.scores] == ["infra_fail"]
    with pytest.raises(Retry):
        simulated(reward_of(response("1", select="best", within_s=30), Scripted([BROKEN])))


@pytest.mark.parametrize("select", [None, "best"])
def test_equal_answers_are_each_paid_for_what_they_took(select: str | None) -> None:
    given = response("a", "a", select=select, within_s=30)
    dear, cheap = (
        sample.model_copy(update={"usage": Usage(sampled_tokens=tokens)})
        for sample, tokens in zip(given.samples, (30, 10), strict=True)
    )
    work = given.work and given.work.model_copy(update={"reference": "a"})
    strategy = build_strategy(ScorerSettings(scorer="verifier:exact and tokens:10"))

    reward, _ = simulated(reward_of(given.model_copy(update={"samples": (dear, cheap), "work": work}), strategy))

    assert [score.score for score in reward.scores] == [0.25, 0.5]


@pytest.mark.parametrize(("select", "audits"), [(None, False), ("best", True)], ids=["no choice named", "the auditor"])
def test_other_groups_are_scored_whole_however_long_it_takes(select: str | None, audits: bool) -> None:
    async def published_scores() -> list[float | None]:
        bus = MemoryBus(fleet_topology(("small",)))
        await bus.start()
        settings = ScorerSettings(scorer_audits=audits)
        worker = ScorerWorker(settings, bus, Slowly(), wall=wall, seconds=steady)
        await worker.handle(bus_delivery(response("1", "9", select=select)))
        (published,) = bus.deliveries_published("audits.scores" if audits else REWARDS)
        return [score.score for score in Reward.decode(published.body).scores]

    assert simulated(published_scores()) == [0.1, 0.9]


def test_what_was_lost_or_called_off_is_shown_to_nobody_and_has_no_score() -> None:
    strategy = Slowly()
    given = response("1", "2", "3", select="first-passing", s0="cancelled", s2="lost")

    reward, _ = simulated(reward_of(given, strategy))

    assert strategy.asked == ["2"]
    assert [(score.score, score.status) for score in reward.scores] == [
        (None, "cancelled"),
        (0.2, "ok"),
        (None, "infra_fail"),
    ]


def test_the_judge_puts_the_finalists_in_order_and_the_scores_stay() -> None:
    judge = Preferring({"4": 0.9, "4.0": 0.5, "3": 0.5})

    reward, _ = simulated(reward_of(response("1", "3", "4.0", "4", "3", select="judge", within_s=30), Slowly(), judge))

    assert judge.seen == ["4.0", "4", "3"], "the best first, none twice, none far behind"
    assert [score.score for score in reward.scores] == [0.1, 0.3, 0.4, 0.4, 0.3]
    assert [score.place for score in reward.scores] == [None, 3, 2, 1, None]


@pytest.mark.parametrize(
    "judge", [Preferring(None), Preferring({"1": 1.0, "2": 0.0}, seconds=60)], ids=["none", "slow"]
)
def test_a_judge_that_says_nothing_in_time_leaves_the_scores_to_choose(judge: Preferring) -> None:
    reward, at = simulated(reward_of(response("1", "2", select="judge"), Slowly(), judge))

    assert [(score.score, score.place) for score in reward.scores] == [(0.1, None), (0.2, None)]
    assert at <= 4.5


def test_a_judge_is_not_asked_about_one_answer_or_by_tasks_that_choose_otherwise() -> None:
    judge = Preferring({})

    alone, _ = simulated(reward_of(response("1", "1", select="judge"), Slowly(), judge))
    best, _ = simulated(reward_of(response("1", "2", select="best"), Slowly(), judge))

    assert judge.seen == []
    assert [score.place for score in (*alone.scores, *best.scores)] == [1, None, None, None]


SCORES = st.lists(st.sampled_from([None, 0.0, 0.3, 0.5, 0.55, 0.9, 1.0]), min_size=1, max_size=8)


@settings(max_examples=50)
@given(SCORES, st.lists(st.sampled_from("abcdef"), min_size=8, max_size=8))
def test_finalists_are_the_best_distinct_answers_near_the_best(values: list[float | None], texts: list[str]) -> None:
    worth = dict(zip(texts, values, strict=False))
    answers = [Answer(text) for text, _ in zip(texts, values, strict=False)]
    none = SampleScore(score=None, status="unscorable", reason="?")
    scores = [none if (value := worth[one.text]) is None else SampleScore(score=value) for one in answers]

    found = finalists(answers, scores)

    known = [score.score for score in scores if score.score is not None]
    assert len({answers[at].text for at in found}) == len(found) <= FINALISTS
    assert bool(found) == bool(known)
    if found:
        assert scores[found[0]].score == max(known)
        assert all((max(known) - (scores[at].score or 0.0)) < BEHIND for at in found)


def test_which_scorers_may_be_given_an_answer_at_a_time() -> None:
    def one_by_one(spec: str) -> bool:
        assert parse_spec(spec)
        return scores_one_by_one(build_strategy(ScorerSettings(scorer=spec, scorer_judge_model="judge")))

    for spec in (
        "verifier:exact",
        "judge:absolute",
        "tests",
        "verifier:exact and judge:absolute",
        "style",
        "style and tokens:9",
    ):
        assert one_by_one(spec), spec
    for spec in ("judge:relative", "0.5*verifier:exact + 0.5*judge:relative", "verifier:exact else judge:relative"):
        assert not one_by_one(spec), spec
    assert not scores_one_by_one(Scripted([OK])), "one that does not say"


def test_a_fleet_that_lets_the_judge_choose_names_one() -> None:
    assert JudgesOrder.build(ScorerSettings()) is None
    assert JudgesOrder.build(ScorerSettings(judge_selects=True, scorer_judge_model="judge")) is not None
    assert JudgesOrder.build(ScorerSettings(judge_selects=True, scorer_audits=True)) is None
    with pytest.raises(ScorerError, match="RATCHET_SCORER_JUDGE_MODEL"):
        JudgesOrder.build(ScorerSettings(judge_selects=True))


async def test_side_by_side_each_answer_is_asked_about_in_each_order() -> None:
    class Seeing(Judge):
        def __init__(self) -> None:
            super().__init__("relative", ScorerSettings(scorer_judge_model="judge"))
            self.turns: list[int] = []

        async def _ballot(self, request: ScoringRequest, answers: Sequence[Answer], vote: int) -> list[SampleScore]:
            self.turns.append(vote)
            if vote == 0:
                return [BROKEN] * len(answers)
            return [SampleScore(score=(at + vote) / 10) for at in range(len(answers))]

    judge = Seeing()
    request = ScoringRequest("t", "x", tuple(map(Answer, "abc")))

    means = await judge.compare(request, request.answers)

    assert sorted(judge.turns) == [0, 1, 2]
    assert means is not None and [round(mean, 3) for mean in means] == [0.15, 0.25, 0.35]
    assert await judge.compare(request, request.answers[:1]) is None, "its only verdict failed"
