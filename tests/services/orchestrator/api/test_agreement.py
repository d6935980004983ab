"""/v1/labels and /v1/agreement: people label blind; scorer and auditor are measured by what they said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.logs.names import LABELS
from ratchet.logs.reader import read
from schemas.records.audit import LoggedLabel
from tests.services.orchestrator.api.chatting import Chatting, chatting


def logged(folder: Path) -> list[LoggedLabel]:
    return [LoggedLabel.decode(line.data) for line in read(folder, LABELS)]


async def following(chat: Chatting, **query: Any) -> dict[str, Any] | None:
    answer = await chat.http.get("/v1/labels/next", params=query)
    found: dict[str, Any] | None = answer.json()["found"]
    return found


async def test_what_is_shown_says_neither_who_answered_nor_what_it_was_given(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})

        found = await following(chat)

        assert found is not None
        assert set(found) == {"task_id", "input", "reference", "criteria", "answers"}
        assert [set(answer) for answer in found["answers"]] == [{"sample", "text"}]


async def test_a_label_is_logged_with_the_scores_it_is_compared_with_and_not_asked_for_again(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})
        samples = set()
        while found := await following(chat):
            sample = found["answers"][0]["sample"]
            samples.add(sample)
            taken = await chat.http.post("/v1/labels", json={"task_id": "t1", "sample": sample, "score": 1})
            assert set(taken.json()) == {"label_id"}

        assert samples == {line.answer.sample for line in logged(tmp_path)}
        assert len(samples) > 1
        assert all(line.given_by == "local" and line.answer.judged is not None for line in logged(tmp_path))
        (agent, _) = (await chat.http.get("/v1/agreement")).json()["items"]
        assert agent["judge_by_answers"]["labels"] == len(samples)
        assert agent["auditor_by_answers"]["labels"] == 0


async def test_of_a_pair_both_answers_are_shown_and_the_better_one_is_logged(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})
        found = await following(chat, pairs=True)
        assert found is not None
        first, second = (answer["sample"] for answer in found["answers"])

        await chat.http.post("/v1/labels", json={"task_id": "t1", "sample": first, "other": second, "score": 1})

        (line,) = logged(tmp_path)
        assert line.other is not None
        assert (line.answer.sample, line.other.sample, line.score) == (first, second, 1.0)
        again = await following(chat, pairs=True)
        assert again is None or {answer["sample"] for answer in again["answers"]} != {first, second}


async def test_the_same_key_or_id_counts_once(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})
        label = {"task_id": "t1", "sample": 0, "score": 1, "label_id": "mine"}
        for _ in range(2):
            assert (await chat.http.post("/v1/labels", json=label)).status_code == 200
        other = await chat.http.post("/v1/labels", json=label | {"score": 0})

        assert len(logged(tmp_path)) == 1
        assert other.status_code == 409


NO_LABELS: list[tuple[dict[str, Any], int]] = [
    ({"task_id": "t9", "sample": 0, "score": 1}, 404),
    ({"task_id": "t1", "sample": 40, "score": 1}, 404),
    ({"task_id": "t1", "sample": 0, "other": 0, "score": 1}, 404),
    ({"task_id": "t1", "sample": 0, "score": 2}, 422),
]


async def test_what_is_no_label_is_refused(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        await chat.ask("x", metadata={"task_id": "t1"})

        for fields, status in NO_LABELS:
            assert (await chat.http.post("/v1/labels", json=fields)).status_code == status
        assert logged(tmp_path) == []
