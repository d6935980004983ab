"""Jobs over the API: submitted, released, answered, paused, cancelled, run again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.services.manager.managed import ScriptedFleet, managed
from tests.waiting import settled, until


async def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given a job, one of whose tasks names itself
        tasks = [{"input": "sort: ba", "task_id": "mine"}, "sort: dc"]
        job = await here.post("/v1/jobs", json={"job_id": "j", "tasks": tasks, "priority": 7, "samples": 4})
        assert (job["state"], job["tasks"], job["agent_id"]) == ("queued", 2, "small")

        # when the fleet answers
        assert await here.released(2) == ["j/0", "j/1"]
        asked = here.fleet.open["j/0"]
        assert (asked.input, asked.agent_id, asked.priority, asked.samples) == ("sort: ba", "small", 6, 4)
        here.fleet.answer("j/1", score=1.0)
        here.fleet.answer("j/0", status="failed", reason="too long", response=None)

        # then it has ended, and says of each task what became of it, in that order
        job = await here.wait_for("j", state="done")
        assert (job["ok"], job["failed"], job["failures"]) == (1, 1, {"too long": 1})
        found = (await here.get("/v1/jobs/j/results"))["items"]
        assert [(one["place"], one["n"], one["own_id"], one["state"]) for one in found] == [
            (1, 1, None, "ok"),
            (2, 0, "mine", "failed"),
        ]
        assert found[0]["result"]["score"] == 1.0


async def test_a_job_of_an_evaluation_is_kept_apart_and_has_a_score(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given an evaluation, whose tasks come in two parts, one with a number of answers of its own
        first = {"kind": "evaluation", "job_id": "e", "more": True}
        await here.post("/v1/jobs", json=first | {"tasks": ["a", {"input": "b", "samples": 8}]})
        await here.post("/v1/jobs/e/tasks", json={"first": 2, "tasks": ["c"]})

        # then its tasks teach nothing, and are sampled once
        await here.released(3)
        asked = [here.fleet.open[f"e/{n}"] for n in range(3)]
        assert [(task.kept_apart, task.samples) for task in asked] == [(True, 1), (True, 8), (True, 1)]

        # and the mean of the scores that there are is its score
        here.fleet.answer("e/0", score=1.0)
        here.fleet.answer("e/1", score=0.5)
        here.fleet.answer("e/2", status="failed", reason="too long", response=None)
        job = await here.wait_for("e", state="done")
        assert (job["kind"], job["score"]["tasks"], job["score"]["mean"]) == ("evaluation", 2, 0.75)
        assert (job["score"]["low"], job["score"]["high"]) == pytest.approx((0.26, 1.24), abs=0.001)


async def test_a_page_of_results_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.submit(3, job_id="j")
        for task_id in await here.released(3):
            here.fleet.answer(task_id)
        await here.wait_for("j", state="done")

        answer = await here.api.get("/v1/jobs/j/results", params={"jsonl": True, "limit": 2})
        first = [json.loads(line)["place"] for line in answer.text.splitlines()]
        rest = await here.api.get("/v1/jobs/j/results", params={"jsonl": True, "cursor": answer.headers["X-Next"]})

        assert first == [1, 2]
        assert [json.loads(line)["place"] for line in rest.text.splitlines()] == [3]


async def test_the_same_id_is_the_same_job(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        first = await here.submit(2, job_id="j")
        again = await here.submit(2, job_id="j")
        await here.released(2)
        await here.post("/v1/jobs", 409, json={"job_id": "j", "tasks": ["something else"]})

        assert (first["job_id"], first["created_at"]) == (again["job_id"], again["created_at"])
        assert here.fleet.submitted == ["j/0", "j/1"]


NO_TASKS: list[tuple[Any, str]] = [
    ({"text": "no input"}, "line 2: not a valid task.v1: input"),
    ({"input": "a", "samples": 99}, "line 2: not a valid task.v1: samples"),
    ({"input": "a", "agent_id": "coder"}, "line 2: it names the agent 'coder', and the job is for 'small'"),
    ({"input": "a", "evaluation": "e"}, "line 2: it has 'evaluation'"),
]


async def test_a_line_that_is_no_task_refuses_the_job_whole(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        for line, says in NO_TASKS:
            refused = await here.post("/v1/jobs", 422, json={"job_id": "j", "tasks": ["fine", line, "fine"]})
            assert says in refused["detail"]
            await here.get("/v1/jobs/j", 404)


async def test_a_job_in_parts_begins_with_its_last_one(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given a job whose first part came
        job = await here.submit(2, job_id="j", more=True)
        assert job["state"] == "loading"

        # when the second one comes twice, as after a connection that was cut
        part = {"first": 2, "tasks": ["c"], "more": True}
        await here.post("/v1/jobs/j/tasks", json=part)
        await here.post("/v1/jobs/j/tasks", json=part)
        await here.post("/v1/jobs/j/tasks", 409, json={"first": 7, "tasks": ["x"]})
        await here.post("/v1/jobs/j/tasks", 409, json={"first": 2, "tasks": ["another"]})
        assert not here.fleet.submitted
        await here.post("/v1/jobs/j/tasks", json={"first": 3, "tasks": ["d"]})

        # then each task is there once
        assert await here.released(4) == ["j/0", "j/1", "j/2", "j/3"]


async def test_a_bad_line_of_a_later_part_refuses_the_job_whole(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.submit(2, job_id="j", more=True)
        refused = await here.post("/v1/jobs/j/tasks", 422, json={"first": 2, "tasks": ["c", {"input": 3}]})
        assert "line 4: " in refused["detail"]
        await here.get("/v1/jobs/j", 404)


async def test_a_paused_job_releases_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        await here.submit(2, job_id="j")
        await here.released(1)
        paused = await here.post("/v1/jobs/j/pause")
        here.fleet.answer("j/0")
        await here.wait_for("j", ok=1)
        await settled()
        assert (paused["state"], here.fleet.submitted) == ("paused", ["j/0"])

        resumed = await here.post("/v1/jobs/j/resume")
        assert (resumed["state"], await here.released(1)) == ("running", ["j/1"])


async def test_a_cancelled_job_keeps_what_was_answered(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        # given a job with one task in the fleet
        await here.submit(3, job_id="j")
        await here.released(1)

        # when it is cancelled, and the answer comes afterwards
        cancelled = await here.post("/v1/jobs/j/cancel")
        assert (cancelled["state"], cancelled["cancelled"]) == ("cancelled", 2)
        here.fleet.answer("j/0")

        # then that is kept, and each task has a place
        await here.wait_for("j", ok=1, released=0)
        found = (await here.get("/v1/jobs/j/results"))["items"]
        assert sorted(one["place"] for one in found) == [1, 2, 3]
        assert here.fleet.submitted == ["j/0"]
        await here.post("/v1/jobs/j/pause", 409)


async def test_what_has_no_answer_is_run_again_by_another_id(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        await here.submit(2, job_id="j")
        await here.released(2)
        here.fleet.answer("j/0")
        here.fleet.answer("j/1", status="failed", reason="no luck", response=None)
        await here.wait_for("j", state="done")

        again = await here.post("/v1/jobs/j/rerun")
        assert (again["state"], again["waiting"], again["failed"]) == ("running", 1, 0)
        assert await here.released(1) == ["j/1/2"]
        here.fleet.answer(
            "j/1", status="failed", reason="late", response=None
        )  # of the first attempt: it counts no more
        here.fleet.answer("j/1/2")

        job = await here.wait_for("j", state="done")
        assert (job["ok"], job["failed"]) == (2, 0)


async def test_a_job_whose_deadline_passed_is_refused(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        refused = await here.post("/v1/jobs", 422, json={"tasks": ["a"], "deadline": past})
        assert "has passed" in refused["detail"]
        await here.post("/v1/jobs", 422, json={"tasks": []})
        await here.post("/v1/jobs", 404, json={"tasks": ["a"], "agent_id": "nobody"})


async def test_no_task_has_a_deadline_that_the_fleet_would_refuse(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_job_days=30, longest_deadline_s=1_000) as here:
        # given a job that lasts longer than a task may, and one that ends before
        soon = datetime.now(UTC) + timedelta(seconds=500)
        await here.submit(1, job_id="long")
        await here.submit(1, job_id="short", deadline=soon.isoformat())
        await here.released(2)

        # then the fleet would take both, even if its clock is behind
        until = {name: here.fleet.open[f"{name}/0"].deadline or soon for name in ("long", "short")}
        now = datetime.now(UTC)
        assert now + timedelta(seconds=600) < until["long"] < now + timedelta(seconds=950)
        assert until["short"] == soon


async def test_what_waits_expires_with_its_job(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        await here.submit(2, job_id="j", deadline=soon)
        assert here.fleet.open[(await here.released(1))[0]].deadline is not None
        job = await here.wait_for("j", state="expired")
        assert (job["expired"], job["released"]) == (1, 1)


async def test_a_manager_takes_up_what_another_one_released(tmp_path: Path) -> None:
    # given a manager that is gone while the fleet has a task of it
    async with managed(tmp_path, manager_window=1) as here:
        await here.submit(2, job_id="j")
        await here.released(1)

    # when another one begins
    fleet = ScriptedFleet()
    async with managed(tmp_path, fleet, manager_window=1) as here:
        # then it asks for that task once more, by the same id
        assert await here.released(1) == ["j/0"]
        fleet.answer("j/0")
        await until(lambda: "j/1" in fleet.open)
        fleet.answer("j/1")
        assert (await here.wait_for("j", state="done"))["ok"] == 2


async def test_jobs_are_listed_the_newest_first(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        for name in "abc":
            await here.submit(1, job_id=name)
        page = await here.get("/v1/jobs", params={"limit": 2})
        rest = await here.get("/v1/jobs", params={"limit": 2, "cursor": page["next"]})
        assert [job["job_id"] for job in page["items"] + rest["items"]] == ["c", "b", "a"]


async def test_a_page_of_large_results_is_cut(tmp_path: Path) -> None:
    async with managed(tmp_path) as here:
        # given two results that fit a page together, and a third one that fits none
        await here.submit(3, job_id="j")
        for task_id, size in zip(await here.released(3), (10, 10, 9_000_000), strict=True):
            here.fleet.answer(task_id, artifact={"patch": "x" * size})
        await here.wait_for("j", state="done")

        first = await here.get("/v1/jobs/j/results", params={"limit": 200})
        second = await here.get("/v1/jobs/j/results", params={"limit": 200, "cursor": first["next"]})

        assert [[one["n"] for one in page["items"]] for page in (first, second)] == [[0, 1], [2]]
        assert second["next"] is None


async def test_the_id_of_a_forgotten_job_is_used_again_with_other_tasks(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_keep_days=0.2 / 86_400) as here:
        # given a job that was answered, run again in part, and forgotten
        await here.submit(2, job_id="monday")
        await here.released(2)
        here.fleet.answer("monday/0")
        here.fleet.answer("monday/1", status="failed", reason="no", response=None)
        await here.wait_for("monday", state="done")
        await here.post("/v1/jobs/monday/rerun")
        here.fleet.answer(*await here.released(1))

        async def is_forgotten() -> bool:
            return (await here.api.get("/v1/jobs/monday")).status_code == 404

        await until(is_forgotten)

        # then another one by its id has tasks of other ids, for the fleet would give the old answers
        await here.post("/v1/jobs", json={"job_id": "monday", "tasks": ["refused"], "more": True})
        await here.post("/v1/jobs/monday/tasks", 422, json={"first": 1, "tasks": [{"input": 1}]})
        await here.post("/v1/jobs", json={"job_id": "monday", "tasks": ["another", "third"], "more": True})
        await here.post("/v1/jobs/monday/tasks", json={"first": 2, "tasks": ["fourth"]})
        assert sorted(await here.released(3)) == ["monday/0/3", "monday/1/3", "monday/2/3"]


async def test_a_large_job_that_is_cancelled_ends_in_lots_and_runs_again(tmp_path: Path) -> None:
    async with managed(tmp_path, manager_window=1) as here:
        # given two jobs of more tasks than their cancelling ends at once
        for name in "jk":
            await here.submit(1_500, job_id=name, agent_id="coder")
            await here.post(f"/v1/jobs/{name}/pause")

        # when they are cancelled, and one is run again before all of its tasks have ended
        cancelled = await here.post("/v1/jobs/j/cancel")
        again = await here.post("/v1/jobs/j/rerun")
        await here.post("/v1/jobs/k/cancel")

        # then its tasks run, and those of the other one end soon, each in a place of its own
        assert (cancelled["state"], cancelled["waiting"] > 0) == ("cancelled", True)
        assert (again["state"], again["waiting"] + again["released"]) == ("running", 1_500)
        await here.wait_for("k", cancelled=1_500, waiting=0)
        page = await here.get("/v1/jobs/k/results", params={"limit": 200})
        assert [one["place"] for one in page["items"]] == list(range(1, 201))
