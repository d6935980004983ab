"""A task is cancelled: closed once, told, out of every training, and counted in an experiment as one that expired."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import cancellations_topic
from ratchet.experiments.logged import outcome_of
from ratchet.http.access.roles import Role
from ratchet.logs.groups import teaches_nothing
from schemas import Task
from schemas.messages.response import Sample, Usage
from schemas.messages.task import TaskCancelled
from services.orchestrator.tasks.settlement import ending
from tests.ratchet.http.access.tokens_for_tests import Mint, bearer
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import House, answered, house, scored
from tests.waiting import settled, until


async def test_an_open_task_is_closed_its_user_told_and_its_agent_hears_of_it(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        heard: list[Delivery] = []
        await fleet.bus.listen(cancellations_topic("small"), heard.append)
        await fleet.submit(Task(task_id="a/1", input="x"))
        await fleet.work()
        before = (await api.get("/v1/status")).json()["tasks"]["cancelled"]

        answer = await api.delete("/v1/tasks/a/1")
        again = await api.delete("/v1/tasks/a/1")
        unknown = await api.delete("/v1/tasks/ghost")

        (result,) = await fleet.results()
        assert (answer.status_code, answer.json()["status"], result.status) == (200, "cancelled", "cancelled")
        assert result.reason is not None and "cancelled by local" in result.reason
        assert (again.status_code, again.json()["detail"]) == (409, "the task has ended before: it is cancelled")
        assert unknown.status_code == 404
        assert [TaskCancelled.decode(one.body).task_id for one in heard] == ["a/1"]
        listed = (await api.get("/v1/tasks?state=cancelled")).json()["items"]
        assert [(one["task_id"], one["state"]) for one in listed] == [("a/1", "cancelled")]
        assert (await api.get("/v1/status")).json()["tasks"]["cancelled"] == before + 1


async def test_a_task_that_was_answered_stays_answered(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        await fleet.reward(scored(answered(work, "a", "b"), 0.5, 1.0))
        await fleet.results()

        answer = await api.delete("/v1/tasks/t1")

        assert (answer.status_code, answer.json()["detail"]) == (409, "the task has ended before: it is ok")
        assert (await api.get("/v1/tasks/t1")).json()["state"] == "ok"


async def test_a_late_answer_says_what_it_took_and_neither_teaches_nor_is_sent(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        await fleet.submit(Task(task_id="t1", input="x"))
        (work,) = await fleet.work()
        await api.delete("/v1/tasks/t1")
        await fleet.results()
        used = Usage(calls=2, prompt_tokens=30, sampled_tokens=7)
        samples = (Sample(text="a", usage=used), Sample(text="b", completion_ids=(1, 2), logprobs=(-0.1, -0.2)))
        late = scored(answered(work, "a", "b").model_copy(update={"samples": samples}), 0.5, 1.0)

        await fleet.reward(late)
        await fleet.reward(late)
        await until(lambda: len(fleet.logged()) == 3)
        await settled()

        lines = fleet.logged()
        assert [(line.sample, line.status, line.score, line.sampled_tokens) for line in lines[1:]] == [
            (0, "cancelled", None, None),
            (1, "cancelled", None, 2),
        ]
        assert lines[1].usage == used
        assert all(teaches_nothing(line) for line in lines)
        assert len(fleet.replies) == 1
        assert (await api.get("/v1/tasks/t1")).json()["state"] == "cancelled"


async def test_a_cancel_survives_a_kill_before_its_user_was_told(tmp_path: Path) -> None:
    fleet = House(tmp_path, pace=1_000.0)  # nobody is told, and the index is not written, before it ends
    await fleet.open()
    await fleet.submit(Task(task_id="t1", input="x"))
    (work,) = await fleet.work()
    async with api_of(fleet) as api:
        assert (await api.delete("/v1/tasks/t1")).status_code == 200
    assert not fleet.replies
    await fleet.bus.stop(1.0)
    await fleet.orchestrator._clocks.stop()  # who is killed holds no index locked
    fleet.orchestrator._leadership.release()
    for file in tmp_path.glob("index*"):
        file.unlink()

    async with house(tmp_path) as after, api_of(after) as api:
        (result,) = await after.results()
        await after.reward(scored(answered(work, "a"), 1.0))
        await until(lambda: len(after.logged()) == 2)

        assert result.status == "cancelled"
        assert (await api.get("/v1/tasks/t1")).json()["state"] == "cancelled"
        assert [line.score for line in after.logged()] == [None, None]


async def test_an_answer_and_a_cancel_at_once_close_the_task_once(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, api_of(fleet) as api:
        for number in range(20):
            await fleet.submit(Task(task_id=f"t{number}", input="x"))
        works = await fleet.work(20)

        answers = await asyncio.gather(
            *(api.delete(f"/v1/tasks/{work.task_id}") for work in works),
            *(fleet.reward(scored(answered(work, "a", "b"), 0.5, 1.0)) for work in works),
        )
        results = await fleet.results(20)
        await settled()

        cancelled = {result.task_id for result in results if result.status == "cancelled"}
        assert len(fleet.replies) == 20
        for work, answer in zip(works, answers, strict=False):
            assert answer is not None
            assert answer.status_code == (200 if work.task_id in cancelled else 409)


async def test_an_experiment_counts_it_as_a_task_that_expired_and_its_owner_does_not_know_the_arm(
    tmp_path: Path,
) -> None:
    mint = Mint(tmp_path / "keys")
    async with house(tmp_path, api_public_keys=mint.keys.jwks) as fleet, api_of(fleet) as api:
        api.headers.update(bearer(mint.good(Role.SUBMITTER, "ann")))
        await api.post("/v1/tasks", json={"task_id": "t1", "input": "x"})
        (work,) = await fleet.work()

        shown = (await api.get("/v1/tasks/t1")).json()
        listed = (await api.get("/v1/tasks")).json()["items"]
        assert (shown["arm"], listed[0]["adapter_version"]) == (None, None)
        await api.delete("/v1/tasks/t1")
        await until(lambda: bool(fleet.logged()))

        lines = fleet.logged()
        expired = ending(work, "expired", "too late", lines[0].timestamp)
        assert outcome_of(lines) == outcome_of([expired])
        assert (await api.get("/v1/tasks/t1")).json()["arm"]["adapter_version"] == "v1.0.0"
