"""/v1/tasks: admitted before it answers, waited for, never run twice, told whole."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratchet.logs.names import ASSIGNMENTS, active_path
from ratchet.logs.trajectories import path_of
from schemas import Task
from schemas.api.tasks import TaskHistory
from schemas.messages.response import GenerationLatencies, Sample, Segment, Turn
from tests.services.orchestrator.api.calling import SCORES, TEXTS, answering, api_of
from tests.services.orchestrator.house import answered, house, scored
from tests.waiting import until


async def test_a_task_that_is_not_waited_for_is_in_the_log_and_on_its_way_when_it_is_accepted(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        answer = await api.post("/v1/tasks", json={"task_id": "a/b ü?", "input": "x", "priority": 7})

        assert (answer.status_code, answer.json()["state"]) == (202, "open")
        assert [line["task_id"] for line in fleet.assigned()] == ["a/b ü?"]
        assert [work.task_id for work in await fleet.work(high=True)] == ["a/b ü?"]
        seen = await api.get(answer.headers["location"])
        assert (seen.status_code, seen.json()["task_id"], seen.json()["state"]) == (200, "a/b ü?", "open")


async def test_the_wait_ends_in_time_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        answer = await api.post("/v1/tasks?wait_s=0.05", json={"task_id": "t1", "input": "x"})
        waiting = asyncio.create_task(api.post("/v1/tasks?wait_s=60", json={"task_id": "t1", "input": "x"}))
        waits = fleet.orchestrator.parts.waits
        await until(lambda: len(waits) == 1)
        waiting.cancel()

        assert answer.status_code == 202
        await until(lambda: len(waits) == 0)


async def test_the_same_task_id_is_the_same_task_and_runs_once(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet, after_s=0.05):
        body = {"task_id": "t1", "input": "x"}
        answers = await asyncio.gather(*(api.post("/v1/tasks?wait_s=60", json=body) for _ in range(20)))
        late = await api.post("/v1/tasks", json=body | {"input": "another"})

        assert {answer.status_code for answer in (*answers, late)} == {200}
        assert len({answer.text for answer in (*answers, late)}) == 1
        assert len(fleet.assigned()) == 1
        assert len(fleet.bus.deliveries_published("results")) == 1


@pytest.mark.parametrize("left", [b"", b'{"task_id": "another"}\n'], ids=["cut off", "another's"])
async def test_a_task_whose_line_was_taken_from_the_log_is_told_to_be_lost_and_nobody_waits(
    tmp_path: Path, left: bytes
) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet):
        headers = {"Idempotency-Key": "order-17"}
        first = await api.post("/v1/tasks?wait_s=60", json={"input": "x"}, headers=headers)
        task_id = first.json()["task_id"]
        active_path(tmp_path, ASSIGNMENTS).write_bytes(left)

        async with asyncio.timeout(30):
            told = await api.get(f"/v1/tasks/{task_id}")
            again = await api.post("/v1/tasks", json={"input": "x"}, headers=headers)

        assert (told.status_code, told.json()["type"]) == (503, "log")
        assert f"does not hold task {task_id}" in told.json()["detail"]
        assert (again.status_code, again.json()["type"]) == (503, "log")


async def test_a_key_serves_as_the_id_and_must_come_with_the_same_task(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet):
        headers = {"Idempotency-Key": "order-17"}
        first = await api.post("/v1/tasks?wait_s=60", json={"input": "x", "task_type": "a"}, headers=headers)
        again = await api.post("/v1/tasks", json={"input": "x", "task_type": "a"}, headers=headers)
        other = await api.post("/v1/tasks", json={"input": "y", "task_type": "a"}, headers=headers)

        assert (first.status_code, again.text) == (200, first.text)
        assert (other.status_code, other.json()["type"]) == (422, "key-reused")
        assert len(fleet.assigned()) == 1


BAD_TASKS: list[tuple[Any, str]] = [
    ({"input": "x", "agent_id": "nobody"}, "unknown agent 'nobody'"),
    ({"input": "x", "adapter_version": "v9.0.0"}, "does not answer with v9.0.0"),
    ({"task_id": "t"}, "/input"),
    ({"input": []}, "/input"),
    ({"input": "x", "task_id": "a\nb"}, "/task_id"),
    ({"input": "x", "samples": 65}, "/samples"),
    ([1], "must be an object"),
]


async def test_a_bad_task_is_refused_with_what_is_wrong_and_leaves_no_trace(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        for body, said in BAD_TASKS:
            answer = await api.post("/v1/tasks", json=body)

            assert answer.status_code == 422
            assert answer.headers["content-type"] == "application/problem+json"
            assert any(word in answer.text for word in said.split("|"))
        assert fleet.assigned() == []


async def test_without_a_broker_it_says_so_and_the_same_task_goes_out_when_it_comes_again(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        fleet.bus.fail_publishes(1_000)
        failed = await api.post("/v1/tasks", json={"task_id": "t1", "input": "x"})
        fleet.bus.fail_publishes(0)
        again = await api.post("/v1/tasks", json={"task_id": "t1", "input": "x"})

        assert (failed.status_code, "retry-after" in failed.headers) == (503, True)
        assert again.status_code == 202
        assert len(await fleet.work()) == len(fleet.assigned()) == 1


async def test_a_task_cut_short_by_a_crash_goes_out_once_when_it_comes_again_after_the_start(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        fleet.bus.fail_publishes(1_000)
        await api.post("/v1/tasks", json={"task_id": "t1", "input": "x"})

    async with house(tmp_path) as fleet, api_of(fleet) as api:
        for _ in range(3):
            assert (await api.post("/v1/tasks", json={"task_id": "t1", "input": "x"})).status_code == 202
        assert len(await fleet.work()) == 1


async def test_a_deadline_ends_the_wait_with_the_sentence(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        answer = await api.post("/v1/tasks?wait_s=30", json={"task_id": "t1", "input": "x", "deadline": soon})
        told = await history(api, "t1")

        assert (answer.status_code, answer.json()["status"]) == (200, "expired")
        assert (told.state, told.samples, [hop.name for hop in told.hops]) == ("expired", [], ["queued"])
        assert told.result is not None
        assert "no answer within" in (told.result.reason or "")


async def test_the_history_tells_hops_samples_scores_and_the_result(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet):
        body = {
            "task_id": "t1",
            "input": "x",
            "reference": "y",
            "session_id": "s",
            "metadata": {"source": "me", "n": 1},
        }
        await api.post("/v1/tasks?wait_s=60", json=body)
        told = await history(api, "t1")

        assert (told.state, told.sequence, told.reference, told.session_id) == ("ok", 0, "y", "s")
        assert told.metadata.model_dump()["n"] == 1
        assert [(s.index, s.text, s.score, s.chosen) for s in told.samples] == [
            (0, TEXTS[0], SCORES[0], False),
            (1, TEXTS[1], SCORES[1], True),
        ]
        assert [hop.name for hop in told.hops] == ["queued", "generated", "awaiting_score", "scored", "settled"]
        assert told.closed_at is not None
        spent = sum(hop.seconds or 0.0 for hop in told.hops)
        assert abs((told.closed_at - told.admitted_at).total_seconds() - spent) < 1e-3
        assert told.scorer is not None
        assert told.result is not None
        assert told.result.sample == 1


async def test_long_conversations_are_logged_apart_and_shown_turn_by_turn_or_why_not(tmp_path: Path) -> None:
    turn = Turn(role="assistant", content="what a walk", span=0)
    segment = Segment(
        prompt_ids=(1,), completion_ids=tuple(range(12_000)), spans=((0, 12_000),), logprobs=(-0.5,) * 12_000
    ).model_copy(update={"turns": (turn,)})
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        short, long = Sample(text="a"), Sample(text="b", segments=(segment,), program="looker")
        await fleet.reward(scored(answered(work).model_copy(update={"samples": (short, long, long)}), 0.1, 0.9, 0.2))
        await fleet.results()

        lines = fleet.logged()
        assert [line.segments for line in lines] == [None] * 3
        assert [line.sampled_tokens for line in lines] == [None, 12_000, 12_000]
        told = (await history(api, "t1")).samples
        assert [sample.tokens for sample in told] == [None, 12_000, 12_000]
        assert told[1].segments is not None and told[1].segments[0].turns[0].content == "what a walk"

        assert lines[2].trajectory is not None
        path_of(tmp_path, lines[2].trajectory.sha256).unlink()
        told = (await history(api, "t1")).samples
        assert told[1].segments is not None and told[1].unreadable is None
        assert told[2].segments is None and "it is not there" in (told[2].unreadable or "")


async def test_late_samples_of_an_expired_task_are_in_its_history_and_its_result_stays(tmp_path: Path) -> None:
    async with house(tmp_path, task_deadline_s=0.1) as fleet, api_of(fleet) as api:
        await api.post("/v1/tasks?wait_s=60", json={"task_id": "t1", "input": "x"})
        (work,) = await fleet.work()
        await fleet.reward(scored(answered(work, *TEXTS), *SCORES))
        async with asyncio.timeout(30):
            while not (told := await history(api, "t1")).samples:
                pass

        assert (told.state, [sample.text for sample in told.samples]) == ("expired", list(TEXTS))


async def test_histories_are_found_after_a_restart_a_rotation_and_the_loss_of_the_index(tmp_path: Path) -> None:
    async with house(tmp_path, segment_bytes=4096) as fleet, api_of(fleet) as api, answering(fleet):
        for number in range(12):
            await api.post("/v1/tasks?wait_s=60", json={"task_id": f"t{number}", "input": "x" * 400})
    for file in tmp_path.glob("index.sqlite*"):
        file.unlink()

    async with house(tmp_path, segment_bytes=4096) as fleet, api_of(fleet) as api:
        assert len(list(tmp_path.glob("agent_interactions-*"))) > 2
        for number in range(12):
            told = await history(api, f"t{number}")
            assert (told.task_id, [sample.text for sample in told.samples]) == (f"t{number}", list(TEXTS))


async def test_an_index_of_the_version_before_is_made_anew_from_the_logs(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet):
        await api.post("/v1/tasks?wait_s=60", json={"task_id": "t1", "input": "x"})
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as db:
        db.executescript("DROP INDEX unanswered_tasks; ALTER TABLE tasks DROP COLUMN lines; PRAGMA user_version = 1;")

    async with house(tmp_path) as fleet, api_of(fleet) as api:
        assert [sample.text for sample in (await history(api, "t1")).samples] == list(TEXTS)


async def test_what_nobody_submitted_is_not_found(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        answer = await api.get("/v1/tasks/never/heard of it")

        assert (answer.status_code, answer.json()["type"]) == (404, "unknown-task")


async def test_the_list_is_paged_newest_first_and_each_task_is_on_one_page(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api, answering(fleet):
        for number in range(7):
            agent = "other" if number % 3 == 2 else "small"
            await api.post(
                "/v1/tasks", json={"task_id": f"t{number}", "input": f"question\n{number}", "agent_id": agent}
            )

        async def closed() -> bool:
            return len(await pages(api, limit=50, state="closed")) == 5

        await until(closed)

        assert [one["task_id"] for one in await pages(api, limit=3)] == [f"t{number}" for number in range(6, -1, -1)]
        assert [one["task_id"] for one in await pages(api, limit=1, state="open")] == ["t5", "t2"]
        assert [one["task_id"] for one in await pages(api, limit=2, agent_id="small")] == ["t6", "t4", "t3", "t1", "t0"]
        assert await pages(api, limit=2, state="failed") == []
        (newest, *_) = await pages(api, limit=50, state="closed")
        assert (newest["input"], newest["response"], newest["score"]) == ("question 6", "better", 0.75)


async def test_a_cursor_that_no_page_gave_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        for cursor in ("x", "W10", "WyJhIl0", "WzFlOTld"):
            assert (await api.get("/v1/tasks", params={"cursor": cursor})).status_code == 422


async def test_the_history_says_how_often_answering_and_scoring_were_tried(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await api.post("/v1/tasks", json={"task_id": "t1", "input": "x"})
        (work,) = await fleet.work()
        tried = answered(work, *TEXTS).model_copy(update={"latencies": GenerationLatencies(queue_s=5, attempts=3)})
        await fleet.reward(scored(tried, *SCORES))
        await until(lambda: bool(fleet.bus.deliveries_published("results")))
        told = await history(api, "t1")

        attempts = {hop.name: hop.attempts for hop in told.hops}
        assert attempts == {"queued": None, "generated": 3, "awaiting_score": None, "scored": 1, "settled": None}


async def history(api: httpx.AsyncClient, task_id: str) -> TaskHistory:
    answer = await api.get(f"/v1/tasks/{task_id}")
    assert answer.status_code == 200, answer.text
    return TaskHistory.model_validate(answer.json())


async def pages(api: httpx.AsyncClient, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = (await api.get("/v1/tasks", params=asked)).json()
        found += page["items"]
        if page["next"] is None:
            return found
        asked["cursor"] = page["next"]
