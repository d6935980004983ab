"""POST /v1/feedback: in the log when it is answered, seen in the task's history, refused with the right status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from ratchet.logs.reader import read
from schemas.messages.feedback import LoggedFeedback
from tests.services.orchestrator.api.chatting import Chatting, chatting
from tests.waiting import until


async def give(chat: Chatting, headers: dict[str, str] | None = None, **fields: Any) -> httpx2.Response:
    return await chat.http.post("/v1/feedback", json=fields, headers=headers)


def logged(folder: Path) -> list[LoggedFeedback]:
    return [LoggedFeedback.decode(line.data) for line in read(folder, "feedback")]


async def test_feedback_is_logged_with_who_gave_it_and_shown_with_its_task(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})

        up = await give(chat, task_id="t1", thumbs="up", reason="kept")
        down = await give(chat, task_id="t1", score=0.25, sample=0, metadata={"shop": 7})

        lines = logged(tmp_path)
        assert [(line.sample, line.score, line.given_by) for line in lines] == [(1, 1.0, "local"), (0, 0.25, "local")]
        assert [line.epoch for line in lines] == [1, 1]
        given = [line.model_copy(update={"epoch": None}) for line in lines]
        assert [LoggedFeedback.decode(answer.content) for answer in (up, down)] == given
        history = (await chat.http.get("/v1/tasks/t1")).json()
        assert [one["score"] for one in history["feedback"]] == [1.0, 0.25]


async def test_the_same_key_or_id_counts_once(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})

        for _ in range(2):
            await give(chat, {"Idempotency-Key": "k"}, task_id="t1", thumbs="up")
            await give(chat, task_id="t1", thumbs="down", feedback_id="mine")
        other = await give(chat, task_id="t1", thumbs="up", feedback_id="mine")

        assert [line.score for line in logged(tmp_path)] == [1.0, 0.0]
        assert (other.status_code, other.headers["content-type"]) == (409, "application/problem+json")


PROBLEMS: list[tuple[dict[str, Any], int]] = [
    ({"task_id": "t9", "score": 1}, 404),
    ({"task_id": "open", "score": 1}, 409),
    ({"task_id": "t1", "score": 1, "sample": 3}, 404),
    ({"task_id": "t1", "score": 2}, 422),
    ({"task_id": "t1"}, 422),
    ({"task_id": "t1", "score": 1, "thumbs": "up"}, 422),
]


async def test_what_can_not_be_is_a_problem(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})
        chat.is_silent = True
        await chat.http.post("/v1/tasks", json={"task_id": "open", "input": "x"})
        await until(lambda: len(chat.works) == 2)

        for fields, status in PROBLEMS:
            answer = await give(chat, **fields)

            assert (answer.status_code, answer.json()["status"]) == (status, status), fields
        assert logged(tmp_path) == []
