"""The drafted messages work as they stand, with an agent and a scorer of another make; urgent tasks come first."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import aiormq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratchet.logs.reader import read_json
from tests.acceptance.fleet import ORCHESTRATOR, Fleet
from tests.acceptance.foreign import PREFETCH, peer

pytestmark = pytest.mark.broker

DRAFTED = ["task_id", "input", "response", "score", "agent_id", "adapter_version", "timestamp", "metadata"]


@pytest.fixture(scope="module")
def foreign_agent_fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    """Our orchestrator and scorer; the agent is the test."""
    return start_fleet(agents=("foreign",), foreign_agents=("foreign",))


@pytest.fixture(scope="module")
def foreign_scorer_fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    """Our orchestrator and one agent of ours; the scorer is the test, and so is the second agent."""
    return start_fleet(agents=("small", "foreign"), foreign_agents=("foreign",), foreign_scorer=True)


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def lines_of(fleet: Fleet, log: str, task_id: str) -> list[dict[str, Any]]:
    lines = (record.value for record in read_json(fleet.logs, log, dict))
    return [line for line in lines if line["task_id"] == task_id]


def retried_rewards(fleet: Fleet) -> float:
    """How often one went up the ladder."""
    _, told = fleet[ORCHESTRATOR].get("/metrics")
    samples = (sample for family in text_string_to_metric_families(told) for sample in family.samples)
    wanted = {"queue": "rewards", "outcome": "retried"}
    (count,) = (one.value for one in samples if one.name == "ratchet_messages_total" and one.labels == wanted)
    return count


def logged(fleet: Fleet, task_id: str) -> list[dict[str, Any]]:
    return lines_of(fleet, "agent_interactions", task_id)


async def test_a_third_party_agent_answers_with_four_fields(foreign_agent_fleet: Fleet) -> None:
    task_id = fresh("draft")
    async with peer(foreign_agent_fleet.amqp_url, foreign_agent_fleet.namespace) as foreign:
        # given an agent of another make
        await foreign.answer_work("foreign", lambda work: work["input"].upper())
        await foreign.read_results()
        # when
        await foreign.submit(task_id, "shout", reference="SHOUT")
        # then
        result = await foreign.result(task_id)
    assert (result["status"], result["response"], result["score"], result["agent_id"]) == (
        "ok",
        "SHOUT",
        1.0,
        "foreign",
    )
    (line,) = logged(foreign_agent_fleet, task_id)
    assert list(line)[:8] == DRAFTED
    assert (line["input"], line["response"], line["score"], line["sample"]) == ("shout", "SHOUT", 1.0, 0)


async def test_a_third_party_scorer_rewards_with_four_fields(foreign_scorer_fleet: Fleet) -> None:
    task_id = fresh("scored")
    async with peer(foreign_scorer_fleet.amqp_url, foreign_scorer_fleet.namespace) as foreign:
        await foreign.score_responses(lambda response: 0.25)
        await foreign.read_results()
        await foreign.submit(task_id, "judge me", samples=1)
        result = await foreign.result(task_id)
    assert (result["status"], result["response"], result["score"]) == ("ok", "judge me", 0.25)
    (line,) = logged(foreign_scorer_fleet, task_id)
    assert (line["score"], line["scoring_agent_id"]) == (0.25, "foreign-scorer")


@pytest.mark.parametrize("straight", [True, False], ids=["to the queue", "through the exchange"])
async def test_an_agent_that_publishes_drafts_loses_no_copy(foreign_scorer_fleet: Fleet, straight: bool) -> None:
    ids = [fresh("copy") for _ in range(20)]
    async with peer(foreign_scorer_fleet.amqp_url, foreign_scorer_fleet.namespace) as foreign:
        await foreign.answer_work("foreign", lambda work: work["input"], to="responses.draft", straight=straight)
        await foreign.score_responses(lambda response: 0.5)
        await foreign.read_results()
        await asyncio.gather(*(foreign.submit(task_id, "keep me", agent_id="foreign") for task_id in ids))
        results = [await foreign.result(task_id) for task_id in ids]
        await foreign.at_rest("responses.draft", "responses.kept", "rewards")
        assert await foreign.depth("dead-letters") == 0
    assert {(result["status"], result["response"], result["score"]) for result in results} == {("ok", "keep me", 0.5)}


async def test_rewards_that_come_before_their_responses_cost_no_step_of_the_ladder(foreign_scorer_fleet: Fleet) -> None:
    ids = [fresh("early") for _ in range(100)]
    before = retried_rewards(foreign_scorer_fleet)
    async with peer(foreign_scorer_fleet.amqp_url, foreign_scorer_fleet.namespace) as foreign:
        await foreign.answer_work("foreign", lambda work: "at last", to="responses.draft", reward_first=0.5)
        await foreign.read_results()
        await asyncio.gather(*(foreign.submit(task_id, "early", agent_id="foreign") for task_id in ids))
        results = [await foreign.result(task_id) for task_id in ids]
        await foreign.purge("responses")
    assert {(result["response"], result["score"]) for result in results} == {("at last", 0.5)}
    steps = retried_rewards(foreign_scorer_fleet) - before
    assert steps <= PREFETCH, "of those in hand where the machine stood still for seconds, and of no other"


async def test_what_goes_straight_to_the_scorers_queue_has_no_copy_and_needs_a_reward_that_carries_it(
    foreign_scorer_fleet: Fleet,
) -> None:
    ids = [fresh("straight") for _ in range(20)]
    async with peer(foreign_scorer_fleet.amqp_url, foreign_scorer_fleet.namespace) as foreign:
        await foreign.answer_work("foreign", lambda work: work["input"], to="responses", straight=True)
        await foreign.score_whole(lambda response: 0.5)
        await foreign.read_results()
        await asyncio.gather(*(foreign.submit(task_id, "carried", agent_id="foreign") for task_id in ids))
        results = [await foreign.result(task_id) for task_id in ids]
        assert await foreign.depth("dead-letters") == 0
    assert {(result["response"], result["score"]) for result in results} == {("carried", 0.5)}
    async with peer(foreign_scorer_fleet.amqp_url, foreign_scorer_fleet.namespace) as foreign:
        with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
            await foreign.bind_default_exchange("responses.kept")


async def test_a_draft_shaped_reward_may_score_the_whole_group(foreign_scorer_fleet: Fleet) -> None:
    task_id = fresh("group")
    async with peer(foreign_scorer_fleet.amqp_url, foreign_scorer_fleet.namespace) as foreign:
        scores = iter([0.25, None, 0.75])
        await foreign.score_groups(lambda text: next(scores))
        await foreign.read_results()
        await foreign.submit(task_id, "all of us", samples=3)
        result = await foreign.result(task_id)
    assert (result["score"], result["sample"]) == (0.75, 2)
    lines = logged(foreign_scorer_fleet, task_id)
    assert [(line["score"], line["score_status"]) for line in lines] == [
        (0.25, "ok"),
        (None, "unscorable"),
        (0.75, "ok"),
    ]


async def test_an_urgent_task_overtakes_those_that_wait(start_fleet: Callable[..., Fleet]) -> None:
    one_at_a_time = {"RATCHET_AGENT_PREFETCH": "1", "RATCHET_AGENT_ECHO_LATENCY_S": "0.2"}
    fleet = start_fleet(environment=one_at_a_time)
    async with peer(fleet.amqp_url, fleet.namespace) as foreign:
        await foreign.read_results()
        # given twenty tasks that wait
        waiting = [fresh("waits") for _ in range(20)]
        await asyncio.gather(*(foreign.submit(task_id, "no hurry", priority=4, samples=1) for task_id in waiting))
        # when
        urgent = fresh("urgent")
        await foreign.submit(urgent, "quick", priority=5, samples=1)
        # then
        await foreign.result(urgent)
        answered_before = [task_id for task_id in waiting if foreign.results_of(task_id)]
        await asyncio.gather(*map(foreign.result, waiting))
    assert len(answered_before) < 10
