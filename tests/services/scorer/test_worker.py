from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import AUDIT_SCORES, AUDITS, DEAD_LETTERS, DRAFT_RESPONSES, RESPONSES, REWARDS, fleet_topology
from ratchet.logs.names import VALIDATION
from ratchet.service.errors import Reject, Retry, SettingsError
from schemas.messages.base import Metadata
from schemas.messages.response import Response, Sample
from schemas.messages.reward import Reward, SampleScore, ScorerIdentity
from schemas.messages.task import ChatMessage
from schemas.messages.work import Arm, Sampling, Work
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest
from services.scorer.worker import ScorerWorker, request_of
from tests.memory_bus import MemoryBus
from tests.services.scorer.scripted import BROKEN, OK, SLOW, UNKNOWN, Scripted
from tests.waiting import until

NOW = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)
WORK = Work(
    task_id="t-1",
    input=(ChatMessage(role="user", content="sort: ba"),),
    agent_id="small",
    reference="ab",
    criteria="sorted",
    task_type="sort",
    deadline=NOW + timedelta(hours=1),
    arm=Arm(sequence=3),
    sampling=Sampling(n=2),
    admitted_at=NOW - timedelta(seconds=9),
)
RESPONSE = Response(
    task_id="t-1",
    response="ab",
    agent_id="small",
    metadata=Metadata(timestamp=NOW - timedelta(seconds=4)),
    samples=(Sample(text="ab", finish_reason="stop"), Sample(text="b", finish_reason="length")),
    adapter_version="v1.0.0",
    work=WORK,
)


async def worker_and_bus(strategy: Scripted, retries: int = 2) -> tuple[ScorerWorker, MemoryBus]:
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    return ScorerWorker(ScorerSettings(scorer_retries=retries), bus, strategy, wall=NOW.timestamp), bus


def delivery(body: bytes, **given: object) -> Delivery:
    return Delivery(RESPONSES, body, type="response.v1", **given)  # type: ignore[arg-type]


def only_reward(bus: MemoryBus) -> Reward:
    (published,) = bus.deliveries_published(REWARDS)
    return Reward.decode(published.body)


async def test_a_response_becomes_a_reward_that_carries_it() -> None:
    strategy = Scripted([SampleScore(score=0.75), UNKNOWN])
    worker, bus = await worker_and_bus(strategy)

    await worker.handle(delivery(RESPONSE.encode()))

    reward = only_reward(bus)
    assert reward.task_id == "t-1"
    assert reward.score == 0.75
    assert reward.scores == (SampleScore(score=0.75), UNKNOWN)
    assert reward.scorer == ScorerIdentity(id="scripted", revision="7")
    assert reward.scoring_agent_id == "scripted"
    assert reward.metadata.timestamp == NOW
    assert reward.metadata.model_extra == {"criteria": "sorted"}
    assert reward.latencies.queue_s == 4.0
    assert reward.latencies.score_s >= 0.0
    assert reward.scored == RESPONSE
    assert strategy.requests == [
        ScoringRequest("t-1", WORK.input, (Answer("ab", "stop"), Answer("b", "length")), "ab", "sorted", "sort")
    ]


async def test_the_message_id_follows_from_task_and_scorer() -> None:
    worker, bus = await worker_and_bus(Scripted([OK, OK]))
    for _ in range(2):
        await worker.handle(delivery(RESPONSE.encode()))
    assert {published.message_id for published in bus.deliveries_published(REWARDS)} == {"t-1/reward/scripted@7"}


async def test_a_draft_shaped_response_is_sent_on_untouched() -> None:
    body = b'{"task_id": "t-9", "response": "hi",  "agent_id": "other", "metadata": {"mine": 1}}'
    strategy = Scripted([OK])
    worker, bus = await worker_and_bus(strategy)

    await worker.handle(delivery(body))

    (published,) = bus.deliveries_published(DRAFT_RESPONSES)
    assert (published.body, published.type, published.message_id) == (body, "response.v1", "t-9/response")
    assert strategy.requests == []
    assert bus.deliveries_published(REWARDS) == []


async def test_a_rollout_that_was_lost_gets_no_score() -> None:
    worker, bus = await worker_and_bus(Scripted([OK, OK]))
    lost = RESPONSE.samples[1].model_copy(update={"status": "lost"})
    response = RESPONSE.model_copy(update={"samples": (RESPONSE.samples[0], lost)})

    await worker.handle(delivery(response.encode()))

    first, second = only_reward(bus).scores
    assert first.score is not None
    assert (second.score, second.status) == (None, "infra_fail") and "lost" in str(second.reason)


@pytest.mark.parametrize(
    "unanswered",
    [
        RESPONSE.model_copy(update={"samples": (), "response": "", "error": "the prompt is too long"}),
        RESPONSE.model_copy(update={"samples": (), "response": ""}),
        RESPONSE.model_copy(update={"error": "broken half-way"}),
    ],
)
async def test_a_response_without_an_answer_is_passed_on_as_a_null(unanswered: Response) -> None:
    strategy = Scripted([OK])
    worker, bus = await worker_and_bus(strategy)

    await worker.handle(delivery(unanswered.encode()))

    reward = only_reward(bus)
    assert (reward.score, reward.scores, reward.scored) == (None, (), unanswered)
    assert strategy.requests == []


@pytest.mark.parametrize("script", [[BROKEN, BROKEN], RuntimeError("bug"), [OK]])
async def test_where_scoring_itself_failed_it_is_retried_and_then_given_up_as_null(
    script: list[SampleScore] | Exception,
) -> None:
    worker, bus = await worker_and_bus(Scripted(script), retries=2)

    for attempt in (0, 1):
        with pytest.raises(Retry, match="no answer could be scored"):
            await worker.handle(delivery(RESPONSE.encode(), attempt=attempt))
    assert bus.deliveries_published(REWARDS) == []
    await worker.handle(delivery(RESPONSE.encode(), attempt=2))

    reward = only_reward(bus)
    assert [(score.score, score.status) for score in reward.scores] == [(None, "infra_fail")] * 2
    assert all(score.reason for score in reward.scores)


@pytest.mark.parametrize("script", [[BROKEN, OK], [UNKNOWN, UNKNOWN], [SLOW, SLOW]])
async def test_what_a_retry_would_not_mend_is_published_at_once(script: list[SampleScore]) -> None:
    worker, bus = await worker_and_bus(Scripted(script))
    await worker.handle(delivery(RESPONSE.encode()))
    assert only_reward(bus).scores == tuple(script)


@pytest.mark.parametrize("timestamp", [None, NOW + timedelta(seconds=5)])
async def test_a_clock_that_is_ahead_or_silent_counts_as_no_wait(timestamp: datetime | None) -> None:
    worker, bus = await worker_and_bus(Scripted([OK, OK]))
    response = RESPONSE.model_copy(update={"metadata": Metadata(timestamp=timestamp)})
    await worker.handle(delivery(response.encode()))
    assert only_reward(bus).latencies.queue_s == 0.0


async def test_without_criteria_the_reward_says_the_scorer() -> None:
    worker, bus = await worker_and_bus(Scripted([OK, OK]))
    work = WORK.model_copy(update={"criteria": None})
    await worker.handle(delivery(RESPONSE.model_copy(update={"work": work}).encode()))
    assert only_reward(bus).metadata.model_extra == {"criteria": "scripted"}


@given(st.binary(max_size=100) | st.sampled_from([b"{}", b"[]", b'{"task_id": 3}', RESPONSE.encode()[:-9]]))
async def test_what_is_no_response_is_rejected_with_a_reason(body: bytes) -> None:
    worker, bus = await worker_and_bus(Scripted([OK]))
    with pytest.raises(Reject, match=r"response\.v1"):
        await worker.handle(delivery(body))
    assert bus.deliveries_published(REWARDS) == []


async def test_over_the_bus_every_response_gets_its_reward_and_bad_ones_go_to_the_dead_letters() -> None:
    strategy = Scripted([OK, OK])
    worker, bus = await worker_and_bus(strategy)
    await worker.start()
    for subscription in worker.subscriptions():
        await bus.consume(subscription.queue, subscription.handler, prefetch=subscription.prefetch)
    for n in range(20):
        response = RESPONSE.model_copy(
            update={"task_id": f"t-{n}", "work": WORK.model_copy(update={"task_id": f"t-{n}"})}
        )
        await bus.publish(RESPONSES, response.encode(), type="response.v1", message_id=f"t-{n}/response")
    await bus.publish(RESPONSES, b"nonsense", type="response.v1", message_id="bad")

    await until(lambda: len(bus.deliveries_published(REWARDS)) == 20 and bus.waiting(DEAD_LETTERS))
    assert await bus.stop(grace_s=1)
    await worker.stop()

    assert {Reward.decode(one.body).task_id for one in bus.deliveries_published(REWARDS)} == {
        f"t-{n}" for n in range(20)
    }
    assert [letter.body for letter in bus.waiting(DEAD_LETTERS)] == [b"nonsense"]
    assert not strategy.running


async def test_the_strategys_trouble_is_the_workers() -> None:
    worker, _ = await worker_and_bus(Scripted([OK], trouble="the judge is away"))
    assert worker.trouble() == "the judge is away"


async def test_the_auditor_is_the_same_worker_on_queues_of_its_own() -> None:
    settings = ScorerSettings(scorer_audits=True, auditor="verifier:exact")
    bus = MemoryBus(fleet_topology(("small",), auditor=True))
    await bus.start()
    auditor = ScorerWorker(settings, bus, Scripted([OK, OK]), wall=NOW.timestamp)

    await auditor.handle(delivery(RESPONSE.encode()))

    assert [subscription.queue for subscription in auditor.subscriptions()] == [AUDITS]
    assert len(bus.deliveries_published(AUDIT_SCORES)) == 1
    assert not bus.deliveries_published(REWARDS)


def test_the_auditor_has_settings_of_its_own_in_the_place_of_the_scorers() -> None:
    judged = ScorerSettings(scorer="judge:absolute", scorer_judge_model="small", scorer_judge_url="http://a/v1")
    audits = judged.model_copy(
        update={"scorer_audits": True, "auditor": "judge:relative", "auditor_judge_model": "another"}
    )

    assert judged.own == judged
    assert (audits.own.scorer, audits.own.scorer_judge_model) == ("judge:relative", "another")
    assert audits.own.scorer_judge_url == "http://a/v1"
    keyed = audits.model_copy(update={"scorer_judge_api_key": SecretStr("of a")})
    assert keyed.own.scorer_judge_api_key == SecretStr("of a")
    assert keyed.model_copy(update={"auditor_judge_url": "http://b/v1"}).own.scorer_judge_api_key is None
    with pytest.raises(SettingsError, match="RATCHET_AUDITOR"):
        _ = ScorerSettings(scorer_audits=True).own


@pytest.mark.parametrize(
    ("experiment_id", "fresh"),
    [
        (None, False),
        ("validation:small-rescored-3", True),
        ("validation:small-anchors-1", True),
        ("a-anchors-b", False),
    ],
)
def test_anchors_that_are_scored_again_ask_for_a_verdict_each(experiment_id: str | None, fresh: bool) -> None:
    work = WORK.model_copy(update={"arm": Arm(sequence=3, experiment_id=experiment_id)})
    assert request_of(RESPONSE, work).fresh is fresh


def test_an_answer_is_scored_up_to_its_stop_string_and_its_tokens_are_all_spent() -> None:
    work = WORK.model_copy(update={"sampling": Sampling(stop=("b",))})
    uncut = Sample(text="abc", finish_reason="length", completion_ids=(1, 2, 3))
    printed = Sample(text="abc", finish_reason="length", program="mine")

    answers = request_of(RESPONSE.model_copy(update={"samples": (uncut, printed)}), work).answers

    assert [(one.text, one.finish_reason) for one in answers] == [("a", "stop"), ("abc", "length")]
    assert answers[0].spent.tokens == 3


@pytest.mark.parametrize(
    ("scorer", "reference", "worth"),
    [
        ("verifier:exact", "ab", 1.0),
        ("verifier:json", '{"a": 1}', 1.0),
        ("verifier:json", "no JSON", 0.0),
        ("0.9*verifier:exact + 0.1*tokens:40", "ab", 1.0),
        ("verifier:numeric", "42", None),
        ("verifier:regex", "[ab]+", None),
        ("verifier:exact", None, None),
    ],
)
async def test_a_reference_is_scored_as_an_answer_where_it_can_be_one(
    scorer: str, reference: str | None, worth: float | None
) -> None:
    settings = ScorerSettings(scorer=scorer)
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    worker = ScorerWorker(settings, bus, build_strategy(settings), wall=NOW.timestamp)
    response = RESPONSE.model_copy(update={"work": WORK.model_copy(update={"reference": reference, "criteria": None})})

    await worker.handle(delivery(response.encode()))

    assert only_reward(bus).reference_score == worth


@pytest.mark.parametrize(
    ("settings", "arm"),
    [({"demonstrations": ()}, WORK.arm), ({}, Arm(sequence=0, experiment_id=f"{VALIDATION}small-1"))],
    ids=["references do not teach", "the gate asks"],
)
async def test_a_reference_that_would_not_teach_costs_no_scoring(settings: dict[str, Any], arm: Arm) -> None:
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    strategy = Scripted([OK, OK])
    strategy.grades_references = True  # type: ignore[attr-defined]
    worker = ScorerWorker(ScorerSettings(**settings), bus, strategy, wall=NOW.timestamp)

    await worker.handle(delivery(RESPONSE.model_copy(update={"work": WORK.model_copy(update={"arm": arm})}).encode()))

    assert len(strategy.requests) == 1
    assert only_reward(bus).reference_score is None
