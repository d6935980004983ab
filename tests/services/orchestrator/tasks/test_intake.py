"""Tasks in: the new are admitted, the known repeated, the broken refused with a sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.topology import MANAGER
from ratchet.service.errors import Reject
from schemas import Task
from tests.ratchet.adapters.making_decisions import promoted_by_hand
from tests.services.orchestrator.api.calling import answering
from tests.services.orchestrator.house import MINUTES, answered, house, scored
from tests.services.orchestrator.program_house import programs_file
from tests.waiting import settled

DRAFT = b'{"task_id": "t1", "input": "hello", "metadata": {"timestamp": "2026-01-01T00:00:00Z", "source": "test"}}'


async def test_a_draft_shaped_task_becomes_work_of_the_default_agent_and_the_primary_arm(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.send("tasks", DRAFT)

        (work,) = await fleet.work()

        assert (work.task_id, work.input, work.agent_id) == ("t1", "hello", "small")
        assert (work.arm.adapter_version, work.arm.propensity, work.arm.sequence) == ("v1.0.0", 1.0, 0)
        assert (work.sampling.n, work.reply_to, work.correlation_id) == (2, "replies", "c")
        assert work.deadline - work.admitted_at == timedelta(hours=1)


async def test_the_assignment_is_on_disk_before_the_work_leaves_and_is_the_same_bytes(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.send("tasks", DRAFT)
        await fleet.work()

        (delivery,) = fleet.bus.deliveries_published("work.small")

        assert (tmp_path / "assignments.jsonl").read_bytes() == delivery.body + b"\n"


async def test_a_task_may_name_its_agent_its_group_size_and_its_priority(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", agent_id="other", samples=5, priority=9))

        (work,) = await fleet.work(agent="other", high=True)

        assert work.sampling.n == 5


async def test_a_version_that_was_promoted_a_moment_ago_answers(tmp_path: Path) -> None:
    async with house(tmp_path, pace=MINUTES) as fleet:
        promoted_by_hand(RegistryStore.from_settings(fleet.settings), "v1.0.1")  # the next turn is minutes away

        await fleet.submit(Task(task_id="t1", input="x", adapter_version="v1.0.1"))

        (work,) = await fleet.work()
        assert work.arm.adapter_version == "v1.0.1"


async def test_a_version_of_a_role_that_was_promoted_a_moment_ago_plays_it(tmp_path: Path) -> None:
    programs = programs_file(tmp_path, 'roles = { writer = "small", mender = "other" }\n')
    async with house(tmp_path, pace=MINUTES, programs=programs) as fleet:
        promoted_by_hand(RegistryStore.from_settings(fleet.settings), "v1.0.1", agent="other")
        played = {"writer": "v1.0.0", "mender": "v1.0.1"}

        await fleet.submit(Task(task_id="t1", input="x", evaluation="swap", role_versions=played))

        (work,) = await fleet.work()
        assert {role: one.adapter_version for role, one in (work.arm.roles or {}).items()} == played


async def test_a_task_is_refused_also_where_the_registry_can_not_be_read(tmp_path: Path) -> None:
    async with house(tmp_path, pace=MINUTES) as fleet:
        path = RegistryStore.from_settings(fleet.settings).path
        path.unlink()
        path.mkdir()

        await fleet.submit(Task(task_id="t1", input="x", adapter_version="v1.0.1"))

        (refusal,) = await fleet.results()
        assert "does not answer with v1.0.1 now" in (refusal.reason or "")


async def test_sequence_numbers_follow_the_order_of_the_log(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        for number in range(50):
            await fleet.submit(Task(task_id=f"t{number}", input="x"))
        await fleet.work(50)

        assert [line["arm"]["sequence"] for line in fleet.assigned()] == list(range(50))


async def test_the_same_task_twice_at_once_is_run_once_and_answered_twice(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        second_queue = fleet.bus.open_reply_queue("second")
        await fleet.submit(Task(task_id="t1", input="x"))
        await fleet.submit(Task(task_id="t1", input="x"), reply_to="second")
        (work,) = await fleet.work()
        await settled()
        await fleet.reward(scored(answered(work, "a", "b"), 0.1, 0.9))

        (result,) = await fleet.results()

        assert result.response == "b"
        assert len(fleet.bus.deliveries_published("work.small")) == len(fleet.assigned()) == len(second_queue) == 1


BROKEN = [
    (b"hello", "", "not JSON"),
    (b'{"task_id": "t1"}', "", "input: Field required"),
    (b'{"task_id": "t1", "input": "x", "agent_id": "nobody"}', "", "unknown agent 'nobody': this fleet has small"),
    (DRAFT, "task.v9", "its AMQP type is 'task.v9', but tasks takes task.v1"),
    (b'{"task_id": "t1", "input": "' + b"x" * 5000 + b'"}', "", "too large"),
    (b'{"task_id": "t1", "samples": 64, "input": "' + b"x" * 1100 + b'"}', "", "too large for 64 samples: 1,1"),
    (b'{"task_id": "t1\\u202etxt", "input": "x"}', "", "task_id has a character that is not printed"),
    (b'{"task_id": "cascade/t1", "input": "x"}', "", "task_id may not begin with 'cascade/'"),
    (b'{"task_id": "t1", "input": "x", "registered_agent": "bot"}', "", "RATCHET_MANAGER_URL"),
]


async def test_a_broken_task_is_dead_lettered_whole_and_its_user_told(tmp_path: Path) -> None:
    async with house(tmp_path, max_message_bytes=2048, max_logged_bytes=64_000) as fleet:
        for number, (body, type_, reason) in enumerate(BROKEN):
            await fleet.send("tasks", body, type=type_)

            why = (await fleet.dead_letters(number + 1))[number]
            result = (await fleet.results(number + 1))[number]

            assert reason in why
            assert (result.status, result.reason) == ("failed", why)
            assert fleet.bus.waiting("dead-letters")[number].body == body
        assert fleet.assigned() == []


async def test_a_task_whose_deadline_has_passed_is_answered_as_expired(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", deadline=datetime.now(UTC) - timedelta(seconds=1)))

        (result,) = await fleet.results()

        assert result.status == "expired"
        assert [(line.status, line.sample, line.response) for line in fleet.logged()] == [("expired", None, None)]


async def test_publishing_is_tried_again_while_the_broker_is_away(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t0", input="x"))
        await fleet.work()
        fleet.bus.fail_publishes(0)
        await fleet.submit(Task(task_id="t1", input="x"))
        fleet.bus.fail_publishes(3)

        works = await fleet.work(2)

        assert [work.task_id for work in works] == ["t0", "t1"]
        assert len(fleet.assigned()) == 2


async def test_who_wants_to_answer_a_task_itself_gets_its_work_and_the_agent_does_not(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        own = fleet.bus.open_reply_queue("reply.mine")
        await fleet.submit(Task(task_id="t1", input="x", work_to="reply.mine"))
        await settled()

        (delivery,) = own
        assert delivery.body + b"\n" == (tmp_path / "assignments.jsonl").read_bytes()
        assert (delivery.type, fleet.bus.deliveries_published("work.small")) == ("work.v1", [])


async def test_work_that_nobody_was_there_for_is_sent_to_who_asks_again(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x", work_to="reply.mine"))
        await settled()
        own = fleet.bus.open_reply_queue("reply.mine")
        await fleet.submit(Task(task_id="t1", input="x", work_to="reply.mine"))
        await settled()

        assert [delivery.type for delivery in own] == ["work.v1"]
        assert len(fleet.assigned()) == 1


@pytest.mark.parametrize("queue", ["tasks", "rewards", "", "reply.", "reply.a b", "x" * 300 + "reply.a"])
def test_work_goes_to_queues_of_the_askers_only(queue: str) -> None:
    with pytest.raises(ValueError, match="work_to"):
        Task(task_id="t1", input="x", work_to=queue)


async def test_a_task_of_a_registered_agent_waits_in_a_queue_of_its_own(tmp_path: Path) -> None:
    async with house(tmp_path, manager_url="http://127.0.0.1:8780") as fleet:
        await fleet.submit_as(MANAGER, Task(task_id="t1", input="x", registered_agent="bot", kept_apart=True))

        (work,) = await fleet.work(agent="small.programs")
        await fleet.reward(scored(answered(work, "a", "b"), 0.0, 1.0))
        await fleet.results()

        assert fleet.bus.deliveries_published("work.small") == []
        assert {(line.registered_agent, line.kept_apart) for line in fleet.logged()} == {("bot", True)}


async def test_only_a_manager_sends_tasks_of_registered_agents(tmp_path: Path) -> None:
    async with house(tmp_path, manager_url="http://127.0.0.1:8780", tenants=("acme",)) as fleet:
        for user in ("client", "client-acme", "managers"):
            with pytest.raises(Reject, match="registered_agent"):
                await fleet.submit_as(user, Task(task_id="t1", input="x", registered_agent="bot"))
        assert fleet.assigned() == []


async def test_a_fleet_with_one_user_of_the_broker_for_all_takes_that_as_its_managers(tmp_path: Path) -> None:
    given: dict[str, Any] = {"manager_url": "http://127.0.0.1:8780", "amqp_url": "amqp://own:secret@127.0.0.1/"}
    async with house(tmp_path, **given) as fleet:
        await fleet.submit_as("own", Task(task_id="t1", input="x", registered_agent="bot"))

        assert [line["task_id"] for line in fleet.assigned()] == ["t1"]


async def test_the_manager_sends_tasks_of_every_tenant_and_is_answered_by_their_keys(tmp_path: Path) -> None:
    async with house(tmp_path, tenants=("acme",)) as fleet, answering(fleet):
        await fleet.submit_as(MANAGER, Task(task_id="tenant:acme/j/0", input="x"), correlation_id="tenant:acme/j/0")
        await fleet.submit_as(MANAGER, Task(task_id="j/0", input="x"))
        results = await fleet.results(2)

        assert sorted(one.task_id for one in results) == ["j/0", "tenant:acme/j/0"]
        with pytest.raises(Reject, match="may not begin with"):
            await fleet.submit_as("client", Task(task_id="tenant:acme/j/1", input="x"))


async def test_a_task_that_a_submitter_sent_first_answers_no_other_task_of_its_id(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet, answering(fleet):
        taken = Task(task_id="run1/0", input="mine")
        assert await fleet.orchestrator.parts.intake.submit(taken, "eve")

        await fleet.submit_as(MANAGER, Task(task_id="run1/0", input="another"), correlation_id="a")
        await fleet.submit_as(MANAGER, taken, correlation_id="b")
        results = await fleet.results(2)

        assert {(one.status, "another task" in (one.reason or "")) for one in results} == {
            ("failed", True),
            ("ok", False),
        }
