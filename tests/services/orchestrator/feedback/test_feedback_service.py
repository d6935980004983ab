"""Feedback off the queue: logged once before it is acked, refused with a sentence where it can't be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.topology import FEEDBACK
from ratchet.logs.reader import read
from schemas import Task
from schemas.messages.feedback import Feedback, LoggedFeedback
from services.orchestrator.ledger.keyed_log import IdUsedBefore
from tests.services.orchestrator.house import House, answered, house, scored
from tests.waiting import settled, until


async def answered_task(at: House, task_id: str, *scores: float) -> None:
    known = len(at.replies)
    await at.submit(Task(task_id=task_id, input="sort: ba"))
    work = (await at.work(known + 1))[-1]
    await at.reward(scored(answered(work, *(f"answer {number}" for number in range(len(scores)))), *scores))
    await at.results(known + 1)


async def give(at: House, task_id: str, score: float, *, message_id: str = "m", **fields: Any) -> None:
    body = Feedback(task_id=task_id, score=score, **fields).encode()
    await at.bus.publish(FEEDBACK, body, type=Feedback.TYPE, message_id=message_id)


def logged(at: House) -> list[LoggedFeedback]:
    return [LoggedFeedback.decode(line.data) for line in read(at.folder, "feedback")]


async def test_feedback_is_about_the_answer_the_user_got_unless_it_names_another(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await answered_task(at, "t1", 0.2, 0.9)

        await give(at, "t1", 0.0, reason="wrong", correction="ab")
        await give(at, "t1", 1.0, sample=0)
        await until(lambda: len(logged(at)) == 2)

        first, second = logged(at)
        assert (first.sample, first.score, first.reason, first.correction) == (1, 0.0, "wrong", "ab")
        assert (second.sample, second.score) == (0, 1.0)
        assert (first.agent_id, first.adapter_version) == ("small", "v1.0.0")


async def test_a_message_that_comes_twice_counts_once_and_one_said_again_counts_again(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await answered_task(at, "t1", 0.5)

        for message_id in ("a", "a", "b"):
            await give(at, "t1", 1.0, message_id=message_id)
        for message_id in ("c", "d"):
            await give(at, "t1", 0.0, message_id=message_id, feedback_id="mine")
        await until(lambda: len(logged(at)) == 3)
        await settled()

        assert [line.score for line in logged(at)] == [1.0, 1.0, 0.0]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"task_id": "t9"}, "no task 't9' was admitted by this fleet"),
    ({"sample": 2}, "task 't1' has 2 samples, 0 first: there is no 2"),
    ({"feedback_id": "used", "score": 0.0}, "feedback 'used' was given before with other content"),
]


async def test_what_can_not_be_is_a_dead_letter_with_the_reason(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await answered_task(at, "t1", 0.2, 0.9)
        await give(at, "t1", 1.0, feedback_id="used")
        await until(lambda: len(logged(at)) == 1)

        for number, (fields, reason) in enumerate(MISTAKES):
            given: dict[str, Any] = {"task_id": "t1", "score": 1.0, **fields}
            await give(at, **given)

            assert reason in (await at.dead_letters(number + 1))[number]
        assert len(logged(at)) == 1


async def test_feedback_to_a_task_without_an_answer_has_nothing_to_judge(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await at.submit(Task(task_id="t1", input="x"))
        await at.reward(scored(answered((await at.work())[0], error="too long")))
        await at.results()

        await give(at, "t1", 1.0)

        assert "ended without an answer (failed)" in (await at.dead_letters())[0]


async def test_feedback_that_comes_before_the_answer_waits_on_the_ladder(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await at.submit(Task(task_id="t1", input="x"))
        await at.work()

        await give(at, "t1", 1.0)
        await settled()

        assert at.bus.waiting("dead-letters") == []
        assert logged(at) == []


async def test_feedback_whose_giver_does_not_wait_is_given_whole_and_its_id_is_taken(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        await answered_task(at, "t1", 0.5)
        desk = at.orchestrator.parts.feedback
        giving = asyncio.create_task(desk.take(Feedback(task_id="t1", score=0.1), "mine"))
        await asyncio.sleep(0)
        giving.cancel()
        await until(lambda: len(logged(at)) == 1)

        with pytest.raises(IdUsedBefore):
            await desk.take(Feedback(task_id="t1", score=0.9), "mine")

        assert [line.score for line in desk.of_task("t1")] == [0.1]
        assert len(logged(at)) == 1
