"""Rewards in: every sample logged once, the best one to the user, whatever comes twice, late or incomplete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import DRAFT_RESPONSES
from ratchet.logs.names import INTERACTIONS, TASK_INDEX, active_path
from ratchet.service.errors import Reject
from schemas import Response, Reward, Task
from schemas.messages.work import Arm
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.logged_task import logged_lines
from services.orchestrator.tasks.settlement import settle
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import House, answered, house, scored
from tests.waiting import settled, until


async def test_the_user_gets_the_best_sample_on_the_reply_queue_and_in_results(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()

        await fleet.reward(scored(answered(work, "a", "b"), None, 0.5))

        (result,) = await fleet.results()
        (delivery,) = fleet.replies
        assert (result.response, result.score, result.sample, result.status) == ("b", 0.5, 1, "ok")
        assert (delivery.correlation_id, delivery.message_id) == ("c", "t1/result")
        assert [delivery.body for delivery in fleet.bus.deliveries_published("results")] == [fleet.replies[0].body]


async def test_an_answer_without_samples_fails_the_task_with_the_agents_reason(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        reward = scored(answered(work, error="the prompt is too long"))

        await fleet.reward(reward)
        await fleet.reward(reward)

        (result,) = await fleet.results()
        await settled()
        assert (result.status, result.reason, result.response) == ("failed", "the prompt is too long", None)
        assert [(line.status, line.sample) for line in fleet.logged()] == [("failed", None)]


async def test_a_reward_for_a_task_nobody_sent_is_dead_lettered(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.send("rewards", b'{"task_id": "ghost", "score": 1, "scoring_agent_id": "j"}')

        (why,) = await fleet.dead_letters()

        assert "no task 'ghost' was admitted" in why


async def test_a_late_reward_is_logged_but_the_user_was_told_it_expired(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        await fleet.submit(Task(task_id="t1", input="x", deadline=soon))
        (work,) = await fleet.work()
        (result,) = await fleet.results()

        await fleet.reward(scored(answered(work, "a", "b"), 0.1, 0.2))
        await until(lambda: len(fleet.logged()) == 3)
        await fleet.reward(scored(answered(work, "a", "b"), 0.1, 0.2))
        await settled()

        assert result.status == "expired"
        assert [line.sample for line in fleet.logged()] == [None, 0, 1]
        assert len(fleet.replies) == 1


async def test_a_draft_shaped_response_is_completed_and_sent_on_to_the_scorer(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", reference="42"))
        await fleet.work()

        await fleet.send("responses.draft", b'{"task_id": "t1", "response": "42", "agent_id": "Their Agent 7"}')
        await until(lambda: bool(fleet.bus.deliveries_published("responses")))

        response = Response.decode(fleet.bus.deliveries_published("responses")[0].body)
        assert response.work is not None
        assert (response.work.reference, response.samples[0].text) == ("42", "42")
        await fleet.reward(scored(response, 1.0))
        (result,) = await fleet.results()
        assert (result.response, result.agent_id) == ("42", "Their Agent 7")


async def test_a_draft_shaped_reward_is_completed_from_the_kept_response(tmp_path: Path) -> None:
    async with house(tmp_path, external_scorer=True) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        await fleet.send("rewards", b'{"task_id": "t1", "score": 0.75, "scoring_agent_id": "theirs"}')

        await fleet.send("responses", answered(work, "a", "b").encode(), reply_to=None)

        (result,) = await fleet.results()
        assert (result.response, result.score) == ("a", 0.75)
        assert [(line.score, line.score_status) for line in fleet.logged()] == [(0.75, "ok"), (None, "unscorable")]


async def test_a_second_and_other_response_does_not_take_the_place_of_the_one_that_is_being_scored(
    tmp_path: Path,
) -> None:
    """An agent that is killed once its Response was confirmed gets the Work again."""
    async with house(tmp_path, external_scorer=True) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        for texts in (("a", "b"), ("c", "d")):
            await fleet.send("responses.kept", answered(work, *texts).encode(), reply_to=None)
        await until(lambda: fleet.bus.outcomes["responses.kept", "acked"] == 2)

        await fleet.reward(Reward(task_id="t1", score=0.75, scoring_agent_id="theirs"))

        (result,) = await fleet.results()
        assert (result.response, result.score) == ("a", 0.75)


async def test_rewards_that_come_before_their_responses_wait_for_them_and_not_on_the_ladder(tmp_path: Path) -> None:
    """More of them than are handled at once, in the other order, and copies that nobody waits for in between."""
    tasks = [f"t{number}" for number in range(12)]
    async with house(tmp_path, external_scorer=True, orchestrator_prefetch=8) as fleet:
        for task_id in tasks:
            await fleet.submit(Task(task_id=task_id, input="x"))
        works = {work.task_id: work for work in await fleet.work(len(tasks))}
        for task_id in tasks:
            await fleet.reward(Reward(task_id=task_id, score=0.75, scoring_agent_id="theirs"))

        for task_id in reversed(tasks):
            await fleet.send("responses.kept", answered(works[task_id], "a").encode(), reply_to=None)
            await fleet.send("responses.kept", answered(works["t11"], "a").encode(), reply_to=None)

        results = await fleet.results(len(tasks))
        assert {(result.response, result.score) for result in results} == {("a", 0.75)}
        assert fleet.bus.outcomes["rewards", "retried"] == 0


async def test_a_reward_whose_response_does_not_come_makes_way_for_others(tmp_path: Path) -> None:
    async with house(tmp_path, external_scorer=True, orchestrator_prefetch=1) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        await fleet.submit(Task(task_id="t2", input="x"))
        works = {work.task_id: work for work in await fleet.work(2)}
        await fleet.reward(Reward(task_id="t1", score=0.75, scoring_agent_id="theirs"))
        await fleet.reward(Reward(task_id="t2", score=0.5, scoring_agent_id="theirs"))
        await fleet.send("responses", answered(works["t2"], "b").encode(), reply_to=None)

        (result,) = await fleet.results()
        (why,) = await fleet.dead_letters()

        assert (result.task_id, result.score) == ("t2", 0.5)
        assert "none was kept for task 't1'" in why


async def test_the_status_says_that_copies_of_responses_do_not_come_until_they_do(tmp_path: Path) -> None:
    """The dead letters say so too, but only after the whole retry ladder."""
    async with house(tmp_path, external_scorer=True) as fleet, api_of(fleet) as api:

        async def no_copies() -> str | None:
            return (await api.get("/v1/status")).json()["no_copies"]  # type: ignore[no-any-return]

        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        await fleet.reward(Reward(task_id="t1", score=0.75, scoring_agent_id="theirs"))
        await until(lambda: fleet.bus.outcomes["rewards", "retried"] > 0)

        why = await no_copies()
        await fleet.send("responses", answered(work, "b").encode(), reply_to=None)
        await fleet.results()

        assert why is not None and "publish to 'responses.draft'" in why
        assert await no_copies() is None


async def test_a_draft_shaped_reward_in_a_fleet_that_keeps_no_responses_says_what_to_set(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        await fleet.work()

        await fleet.reward(Reward(task_id="t1", score=0.75, scoring_agent_id="theirs"))

        (why,) = await fleet.dead_letters()
        assert "set RATCHET_EXTERNAL_SCORER=true" in why
        assert fleet.bus.outcomes["rewards", "retried"] == 0


async def test_a_result_that_the_broker_did_not_take_is_sent_when_it_does(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        reward = scored(answered(work, "a"), 1.0)
        await fleet.reward(reward)
        fleet.bus.fail_publishes(3)

        results = await fleet.results()
        await until(lambda: bool(fleet.bus.deliveries_published("results")))

        assert {result.response for result in results} == {"a"}
        assert len(fleet.logged()) == 1


async def test_an_expiry_that_the_broker_did_not_take_is_told_when_it_does(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", deadline=datetime.now(UTC) + timedelta(seconds=2)))
        await fleet.work()
        fleet.bus.fail_publishes(2)
        await until(lambda: fleet.orchestrator.trouble() is not None)

        (result,) = await fleet.results()

        assert result.status == "expired"
        await until(lambda: fleet.orchestrator.trouble() is None)
        assert len(fleet.logged()) == 1


async def test_a_forged_reward_with_another_input_is_dead_lettered_with_a_reason(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        stranger = fleet.bus.open_reply_queue("stranger")
        await fleet.submit(Task(task_id="t1", input="what is asked"))
        (work,) = await fleet.work()
        forged = work.model_copy(update={"input": "what is forged", "reply_to": "stranger"})

        await fleet.reward(scored(answered(forged, "a"), 1.0))

        (why,) = await fleet.dead_letters()
        assert "its input is another" in why
        assert (fleet.logged(), len(stranger), len(fleet.replies)) == ([], 0, 0)


async def test_a_reward_is_settled_with_the_arm_and_the_origin_that_were_admitted(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        stranger = fleet.bus.open_reply_queue("stranger")
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        arm = work.arm.model_copy(update={"experiment_id": "theirs", "is_candidate": True, "sequence": 99})
        forged = work.model_copy(update={"arm": arm, "reply_to": "stranger", "correlation_id": "theirs"})

        await fleet.reward(scored(answered(forged, "a"), 1.0))

        await fleet.results()
        assert [line.arm for line in fleet.logged()] == [work.arm]
        assert [reply.correlation_id for reply in fleet.replies] == ["c"]
        (settling,) = [one.handler for one in fleet.orchestrator.subscriptions() if one.queue == "rewards"]
        await settling(Delivery("rewards", scored(answered(forged, "a"), 1.0).encode(), redelivered=True))
        assert len(fleet.replies) == 2
        assert len(stranger) == 0


@pytest.mark.parametrize(
    ("claimed", "why"),
    [
        ({"adapter_version": "v1.0.9"}, "by adapter v1.0.9 (no sha256), but task 't1' was assigned to v1.0.0"),
        ({"adapter_version": "x" * 10_000}, "by adapter xxx"),
    ],
)
async def test_an_answer_that_names_another_adapter_than_was_admitted_is_dead_lettered(
    tmp_path: Path, claimed: dict[str, str], why: str
) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        answer = answered(work, "a")

        await fleet.reward(scored(answer.model_copy(update=claimed), 1.0))

        (reason,) = await fleet.dead_letters()
        assert why in reason and len(reason) < 1000
        assert (fleet.logged(), fleet.bus.deliveries_published("results")) == ([], [])

        await fleet.reward(scored(answer.model_copy(update={"adapter_version": None}), 0.5))
        await fleet.results()
        assert [(line.adapter_version, line.score) for line in fleet.logged()] == [("v1.0.0", 0.5)]


async def test_an_answer_that_would_swell_in_the_log_is_dead_lettered(tmp_path: Path) -> None:
    async with house(tmp_path, max_logged_bytes=1024) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        answer = answered(work, "a", "b")

        await fleet.reward(scored(answer.model_copy(update={"prompt_ids": (7,) * 513}), 1.0, 0.0))
        (reason,) = await fleet.dead_letters()
        assert "would take 8,208 bytes in the log" in reason

        await fleet.reward(scored(answer.model_copy(update={"prompt_ids": (7,) * 512}), 1.0, 0.0))
        await fleet.results()
        assert len(fleet.logged()) == 2


async def test_a_draft_of_another_adapter_is_dead_lettered_before_it_is_scored(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        await fleet.work()
        (completing,) = [one.handler for one in fleet.orchestrator.subscriptions() if one.queue == DRAFT_RESPONSES]
        draft = Response(task_id="t1", response="a", agent_id="theirs", adapter_version="v1.0.9")

        with pytest.raises(Reject, match="says that it is by adapter"):
            await completing(Delivery(DRAFT_RESPONSES, draft.encode()))


async def test_a_late_forged_reward_is_compared_with_the_line_in_the_log(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", deadline=datetime.now(UTC) + timedelta(seconds=2)))
        (work,) = await fleet.work()
        await fleet.results()

        await fleet.reward(scored(answered(work.model_copy(update={"agent_id": "other"}), "a"), 1.0))

        (why,) = await fleet.dead_letters()
        assert "its agent_id is another" in why
        assert [line.sample for line in fleet.logged()] == [None]


async def test_a_late_group_that_a_kill_tore_is_completed_however_often_it_starts_in_between(tmp_path: Path) -> None:
    # given a task that expired, and of its late answers one line and a piece of the next
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", deadline=datetime.now(UTC) + timedelta(seconds=2)))
        (work,) = await fleet.work()
        await fleet.results()
    response = answered(work, "a", "b", "c")
    reward = scored(response, 0.1, 0.2, 0.3)
    lines = [line.encode() for line in settle(reward, response, work, datetime.now(UTC))]
    with active_path(tmp_path, INTERACTIONS).open("ab") as log:
        log.write(lines[0] + b"\n" + lines[1][:40])

    # when the fleet has started twice, once without its index, and the Reward comes again, twice
    (tmp_path / TASK_INDEX).unlink()
    async with house(tmp_path) as fleet:
        await fleet.results()
    async with house(tmp_path) as fleet:
        await fleet.reward(reward)
        await until(lambda: len(fleet.logged()) == 4)
        await fleet.reward(reward)
        await settled()

        # then each sample is in the log once, and seen with its task
        assert [line.sample for line in fleet.logged()] == [None, 0, 1, 2]
        known = fleet.orchestrator.ledger.find("t1")
        assert known is not None
        assert [line.sample for line in logged_lines(tmp_path, known)] == [0, 1, 2]
    async with house(tmp_path) as fleet:
        await settled()
        assert list(fleet.replies) == [], "it is told no more"


def is_closed_for_good(fleet: House, task_id: str) -> bool:
    """True once nobody is to be told any more. A stop between its line and that mark leaves it to the next start."""
    known = fleet.orchestrator.ledger.find(task_id)
    return known is not None and known.result is not None and known.work is None


async def test_a_task_of_the_fleets_own_that_expired_is_told_to_nobody_and_holds_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        soon = datetime.now(UTC) + timedelta(seconds=2)
        await fleet.orchestrator.parts.intake.ask(
            Task(task_id="own", input="x", deadline=soon),
            lambda sequence: Arm(experiment_id="validation:small", sequence=sequence),
        )
        await until(lambda: is_closed_for_good(fleet, "own"))

    ledger = Ledger(tmp_path, segment_bytes=1 << 20)

    await ledger.open()
    assert ledger.unanswered == []
    await ledger.close()


@pytest.mark.parametrize(("name", "logged"), [("small", "small"), ("my-program", "my-program"), ("other", None)])
async def test_nobody_answers_in_the_name_of_another_agent_of_the_fleet(
    tmp_path: Path, name: str, logged: str | None
) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()

        await fleet.reward(scored(answered(work, "a", "b").model_copy(update={"agent_id": name}), 0.5, 0.5))

        if logged is None:
            (reason,) = await fleet.dead_letters()
            assert "by 'other', another agent of this fleet" in reason
            assert fleet.logged() == []
            # and the task is still open: the agent that has it answers
            await fleet.reward(scored(answered(work, "a", "b"), 0.5, 0.5))
        (result,) = await fleet.results()
        assert (result.status, {line.agent_id for line in fleet.logged()}) == ("ok", {logged or "small"})
