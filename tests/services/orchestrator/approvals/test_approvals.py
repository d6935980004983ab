"""Questions of programs to people: logged, shown, answered once, sent back as a Work; whatever dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from ratchet.bus.topology import APPROVALS, MANAGER, cancellations_topic
from ratchet.logs.reader import read
from schemas import Task, Work
from schemas.messages.approval_request import ApprovalRequest
from schemas.messages.task import TaskCancelled
from schemas.records.approval import LoggedApproval
from tests.services.orchestrator.api.calling import api_of
from tests.services.orchestrator.house import House, answered, house, scored
from tests.services.orchestrator.observation.test_event_hub import Client, joined
from tests.waiting import settled, until

PROGRAMS = '[agents.small]\nprograms = ["it"]\n\n[programs.it]\ncommand = ["true"]\n'


@asynccontextmanager
async def asking(folder: Path, **settings: Any) -> AsyncIterator[House]:
    (folder / "programs.toml").write_text(PROGRAMS)
    async with house(folder / "logs", programs=folder / "programs.toml", **settings) as at:
        yield at


async def ask(at: House, approval_id: str, task_id: str = "t1", sample: int = 0, **given: Any) -> None:
    fields = {"agent_id": "small", "program": "it", "sample": sample, "question": "So?"} | given
    request = ApprovalRequest(approval_id=approval_id, task_id=task_id, **fields)
    await at.bus.publish(APPROVALS, request.encode(), type=ApprovalRequest.TYPE, message_id=approval_id)


async def submitted(at: House, **given: Any) -> None:
    await at.submit(Task(task_id="t1", input="x", **given))
    await at.work()


def lines(folder: Path) -> list[LoggedApproval]:
    return [LoggedApproval.decode(line.data) for line in read(folder / "logs", "approvals")]


async def until_logged(folder: Path, count: int) -> list[LoggedApproval]:
    await until(lambda: len(lines(folder)) >= count)
    return lines(folder)


async def until_open(http: httpx.AsyncClient, *approval_ids: str) -> None:
    """Until these questions, and no others, are open."""
    while [one["approval_id"] for one in (await http.get("/v1/approvals")).json()["items"]] != list(approval_ids):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def resumed(at: House, count: int = 1) -> list[Work]:
    """The Works that went out again."""
    return (await at.work(1 + count))[1:]


async def test_a_question_is_listed_and_its_answer_sends_the_work_again(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        await ask(at, "a", options=("yes", "no"), patch="+x")
        await until_open(http, "a")
        (shown,) = (await http.get("/v1/approvals")).json()["items"]
        assert (shown["question"], shown["options"], shown["patch"], shown["decision"]) == (
            "So?",
            ["yes", "no"],
            "+x",
            None,
        )

        answer = await http.post("/v1/approvals/a", json={"decision": "reject", "text": "too slow"})
        (work,) = await resumed(at)

        assert (answer.status_code, answer.json()["given_by"]) == (200, "local")
        assert [(one.approval_id, one.sample, one.decision, one.text) for one in work.approvals or ()] == [
            ("a", 0, "reject", "too slow")
        ]
        assert (await http.get("/v1/approvals")).json()["items"] == []
        assert [line.state for line in await until_logged(tmp_path, 3)] == ["asked", "decided", "resumed"]


async def test_a_question_and_its_answer_are_events(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        client = Client(at.orchestrator.parts.hub, kinds=frozenset({"approval"}))
        await joined(at.orchestrator.parts.hub, 1)
        await submitted(at)
        await ask(at, "a")
        await until_open(http, "a")
        await http.post("/v1/approvals/a", json={"decision": "approve"})

        await until(lambda: len(client.events) >= 2)
        await client.leave()
    assert [(told["approval_id"], told["decision"]) for _, told in client.events] == [("a", None), ("a", "approve")]


async def test_a_registered_agents_work_goes_back_to_its_own_queue(tmp_path: Path) -> None:
    async with asking(tmp_path, manager_url="http://127.0.0.1:8780") as at, api_of(at) as http:
        await at.submit_as(MANAGER, Task(task_id="t1", input="x", registered_agent="bot"))
        await ask(at, "a")
        await until_open(http, "a")
        await http.post("/v1/approvals/a", json={"decision": "approve"})
        await until_logged(tmp_path, 3)

        _, work = await at.work(agent="small.programs", count=2)
        assert (work.registered_agent, [one.decision for one in work.approvals or ()]) == ("bot", ["approve"])
        assert at.bus.deliveries_published("work.small") == []


async def test_the_first_answer_counts(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        await ask(at, "a")
        await until_open(http, "a")
        await http.post("/v1/approvals/a", json={"decision": "approve", "text": "so"})

        for decision, text, status in (("approve", "so", 200), ("approve", "other", 409), ("reject", "so", 409)):
            second = await http.post("/v1/approvals/a", json={"decision": decision, "text": text})
            assert second.status_code == status
        await resumed(at)
        await settled()
        assert len(await at.work(2)) == 2


async def test_a_question_that_comes_again_is_logged_once_and_if_answered_sends_the_work_again(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        for _ in range(2):
            await ask(at, "a")
        await until_open(http, "a")
        await http.post("/v1/approvals/a", json={"decision": "approve"})
        await resumed(at)
        await ask(at, "a")

        assert [len(work.approvals or ()) for work in await resumed(at, 2)] == [1, 1]
        assert [line.state for line in lines(tmp_path)] == ["asked", "decided", "resumed"]


async def test_the_work_waits_for_all_questions_of_its_rollout(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        await ask(at, "a")
        await ask(at, "b")
        await until_open(http, "a", "b")
        await http.post("/v1/approvals/a", json={"decision": "approve"})
        await http.post("/v1/approvals/b", json={"decision": "edit", "text": "z"})

        (work,) = await resumed(at)
        assert [one.decision for one in work.approvals or ()] == ["approve", "edit"]


async def test_what_was_answered_and_not_sent_is_sent_after_a_restart(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        await ask(at, "a")
        await ask(at, "b", sample=1)
        await until_open(http, "a", "b")
        await http.post("/v1/approvals/a", json={"decision": "approve"})
        await until_logged(tmp_path, 3)
    path = tmp_path / "logs" / "approvals.jsonl"
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if b'"resumed"' not in line]
    path.write_bytes(b"".join(kept))  # as if it had been killed before it sent
    for name in ("approvals.sqlite", "approvals.sqlite-wal", "approvals.sqlite-shm"):
        (tmp_path / "logs" / name).unlink(missing_ok=True)

    async with asking(tmp_path) as at, api_of(at) as http:
        (work,) = await at.work()
        assert [one.approval_id for one in work.approvals or ()] == ["a"]
        assert [one["approval_id"] for one in (await http.get("/v1/approvals")).json()["items"]] == ["b"]


async def test_nobody_answers_in_time(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at, deadline=datetime.now(UTC) + timedelta(seconds=3))
        await ask(at, "a")
        (work,) = await resumed(at)

        assert [one.decision for one in work.approvals or ()] == ["expired"]
        late = await http.post("/v1/approvals/a", json={"decision": "approve"})
        assert (late.status_code, late.json()["type"].rpartition("/")[2]) == (409, "answered-before")


async def test_a_task_that_has_ended_asks_nothing_any_more(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        await ask(at, "a")
        await until_open(http, "a")
        await at.reward(scored(answered((await at.work())[0], "one", "two"), 0.5, 0.5))
        await at.results()

        assert (await http.post("/v1/approvals/a", json={"decision": "approve"})).status_code == 409
        ended: list[str] = []
        await at.bus.listen(
            cancellations_topic("small"), lambda told: ended.append(TaskCancelled.decode(told.body).task_id)
        )
        for approval_id in ("a", "b"):  # a Work that came again asks what was asked before, or something else
            await ask(at, approval_id)
            await settled()
        assert len(lines(tmp_path)) == 1
        assert ended == ["t1", "t1"]  # so that its runner keeps nothing of it


async def test_an_edit_of_a_result_has_a_text_and_no_question_no_answer(tmp_path: Path) -> None:
    async with asking(tmp_path) as at, api_of(at) as http:
        await submitted(at)
        await ask(at, "a", ends=True)
        await until_open(http, "a")

        assert (await http.post("/v1/approvals/a", json={"decision": "edit", "text": " "})).status_code == 422
        assert (await http.post("/v1/approvals/z", json={"decision": "approve"})).status_code == 404
        assert (await http.post("/v1/approvals/a", json={"decision": "edit", "text": "z"})).status_code == 200


async def test_a_question_that_no_rollout_can_ask_is_a_dead_letter(tmp_path: Path) -> None:
    async with asking(tmp_path) as at:
        await submitted(at)
        for given in ({"sample": 2}, {"agent_id": "other"}):
            fields = {"approval_id": "a", "task_id": "t1", "agent_id": "small", "program": "it", "sample": 0}
            request = ApprovalRequest.model_validate(fields | {"question": "?"} | given)
            await at.bus.publish(APPROVALS, request.encode(), type=ApprovalRequest.TYPE, message_id="a")

        assert all("another agent" in why for why in await at.dead_letters(2))
