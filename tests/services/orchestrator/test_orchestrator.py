"""One works, the other waits."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import events_topic, topology_of
from ratchet.files.append_file import AppendFile
from ratchet.logs.index_check import disagreement
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, active_path, task_index
from ratchet.logs.segments import sealed_segments
from ratchet.service.errors import LeadershipLost, StorageUnavailable
from schemas import Task
from schemas.messages.reward import AgentRewards
from schemas.records.decision import DecisionDraft, Freeze
from services.orchestrator.observation.gauges import QueueGauges
from tests.disks import files_no_larger_than
from tests.ratchet.adapters.making_adapters import NOON
from tests.services.orchestrator.house import House, answered, house, scored
from tests.waiting import settled, until


async def test_a_second_orchestrator_waits_as_a_hot_standby_and_takes_over_with_all_that_is_known(
    tmp_path: Path,
) -> None:
    standby = House(tmp_path)
    async with house(tmp_path) as first:
        waiting = asyncio.create_task(standby.open())
        await until(lambda: standby.orchestrator.trouble() is not None)
        assert "standby" in (standby.orchestrator.trouble() or "")
        await first.submit(Task(task_id="t1", input="x"))
        (work,) = await first.work()
        assert not waiting.done()

    await waiting
    await standby.reward(scored(answered(work, "a"), 1.0))

    (result,) = await standby.results()
    assert result.response == "a"
    assert standby.orchestrator.trouble() is None
    await standby.close()


async def test_a_standby_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    standby = House(tmp_path)
    async with house(tmp_path):
        waiting = asyncio.create_task(standby.open())
        await settled()
        waiting.cancel()
        await asyncio.wait([waiting], timeout=30)
        await standby.close()

        assert waiting.cancelled()


async def test_of_two_that_lead_at_once_the_older_logs_tells_and_decides_nothing(tmp_path: Path) -> None:
    """Provoked: the first gives no sign of life and works on."""
    first, second = House(tmp_path, lease_s=1), House(tmp_path, lease_s=1)
    await first.open()
    await first.submit(Task(task_id="t1", input="x"))
    (work,) = await first.work()
    await first.orchestrator._lease_clock.stop()
    await second.open()
    assert second.orchestrator.trouble() is None

    await first.submit(Task(task_id="t2", input="x"))
    await first.reward(scored(answered(work, "a"), 1.0))
    await second.submit(Task(task_id="t3", input="x"))
    await second.reward(scored(answered(work, "b"), 1.0))
    assert [result.response for result in await second.results()] == ["b"]
    await second.work()
    await settled(0.2)

    assert not first.replies
    assert len(first.bus.deliveries_published("work.small")) == 1
    assert [(line["task_id"], line["epoch"]) for line in second.assigned()] == [("t1", 1), ("t3", 2)]
    assert [(line.response, line.epoch) for line in second.logged()] == [("b", 2)]
    operator = {"agent_id": "small", "who": "orchestrator", "at": NOON, "reason": "it thinks it leads"}
    store = first.orchestrator.parts.store
    for write in (
        first.orchestrator.ledger.commit,
        lambda: store.update(lambda _: DecisionDraft.model_validate(operator | {"move": Freeze()})),
    ):
        with pytest.raises(LeadershipLost):
            write()
    assert "epoch 2" in (first.orchestrator.trouble() or "")
    await first.bus.stop(0)
    await first.orchestrator.stop()
    await second.close()
    assert disagreement(task_index(tmp_path), tmp_path) is None


async def test_lines_and_folders_from_before_there_were_epochs_are_taken_over_as_they_are(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        await fleet.work()
    line = {key: value for key, value in fleet.assigned()[0].items() if key != "epoch"}
    for path in (tmp_path / ".lock", *tmp_path.glob("index.sqlite*")):
        path.unlink()
    (tmp_path / "assignments.jsonl").write_bytes(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t2", input="x"))
        await until(lambda: len(fleet.assigned()) == 2)

        assert [one.get("epoch") for one in fleet.assigned()] == [None, 1]
        assert not sealed_segments(tmp_path, ASSIGNMENTS)


async def test_a_work_that_may_never_have_left_is_sent_again_when_the_task_comes_back(tmp_path: Path) -> None:
    async with house(tmp_path) as first:
        await first.submit(Task(task_id="t1", input="x"))
        await first.work()

    async with house(tmp_path) as second:
        again = Delivery("tasks", Task(task_id="t1", input="x").encode(), redelivered=True)
        (intake,) = [one.handler for one in second.orchestrator.subscriptions() if one.queue == "tasks"]
        await intake(again)

        assert len(await second.work()) == len(second.assigned()) == 1


async def test_the_depth_and_the_bound_of_every_queue_are_on_the_metrics(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        await fleet.submit(Task(task_id="t1", input="x"))
        await fleet.work()
        topology = topology_of(fleet.settings)
        gauges = QueueGauges(fleet.bus, topology, "blue.")

        await gauges.refresh()

        assert REGISTRY.get_sample_value("ratchet_queue_messages", {"queue": "work.small"}) == 1
        assert REGISTRY.get_sample_value("ratchet_queue_consumers", {"queue": "tasks"}) == 1
        bounds = {"tasks": topology.queue("tasks").max_bytes, "retry.5s": topology.rungs[0].max_bytes}
        for name, bound in bounds.items():
            labels = {"queue": name, "wire": f"blue.{name}"}
            assert REGISTRY.get_sample_value("ratchet_queue_max_bytes", labels) == bound


async def test_an_agent_is_told_what_its_answers_were_worth_once_they_are_logged(tmp_path: Path) -> None:
    told: list[AgentRewards] = []

    def hear(delivery: Delivery) -> None:
        if delivery.type == AgentRewards.TYPE:
            told.append(AgentRewards.decode(delivery.body))

    async with house(tmp_path) as opened:
        await opened.bus.listen(events_topic("small"), hear)
        for name in ("one", "two"):
            await opened.submit(Task(task_id=name, input="2+2"))
        for work in await opened.work(2):
            for _ in range(2):
                await opened.reward(scored(answered(work, "4", "5"), 0.25, None))
        await until(lambda: sum(len(news.tasks) for news in told) == 2)

    tasks = [task for news in told for task in news.tasks]
    assert {task.task_id for task in tasks} == {"one", "two"}
    assert {(task.adapter_version, task.scores) for task in tasks} == {("v1.0.0", (0.25, None))}


async def test_while_the_log_takes_nothing_it_is_not_ready_and_no_message_is_to_blame(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        # given a log of answers that is the largest file, and may not grow
        await fleet.submit(Task(task_id="t1", input="x" * 200_000))
        (work,) = await fleet.work()
        await fleet.reward(scored(answered(work, "a", "b"), 0.5, 0.5))
        await fleet.results()
        await fleet.submit(Task(task_id="t2", input="x"))
        second = (await fleet.work(2))[1]
        with files_no_larger_than(active_path(tmp_path, INTERACTIONS).stat().st_size):
            # when an answer comes, readiness says so
            await fleet.reward(scored(answered(second, "c"), 1.0))
            await until(lambda: "can't grow" in (fleet.orchestrator.trouble() or ""))
            assert "largest file size" in (fleet.orchestrator.trouble() or "")

        # then it goes on by itself, with no attempt counted and nothing lost
        results = await fleet.results(2)
        await until(lambda: fleet.orchestrator.trouble() is None)
        assert [result.response for result in results] == ["a", "c"]
        assert list(fleet.bus.waiting("dead-letters")) == []
        assert [line.task_id for line in fleet.logged()] == ["t1", "t1", "t2"]


class SickDisk(AppendFile):
    """Refuses each write and each sync while it has an errno."""

    says = 0

    def append(self, data: bytes) -> None:
        self._refuse()
        super().append(data)

    def sync(self) -> None:
        self._refuse()
        super().sync()

    def _refuse(self) -> None:
        if SickDisk.says:
            raise OSError(SickDisk.says, os.strerror(SickDisk.says))


HOUR_S = 3_600.0
"""Of the double's pauses, which last a thousandth of what they say."""


async def test_an_hour_of_a_sick_disk_costs_no_message_an_attempt_and_all_is_told_after(tmp_path: Path) -> None:
    async with house(tmp_path, file_type=SickDisk) as fleet:
        for number in range(30):
            await fleet.submit(Task(task_id=f"t{number}", input="x"))
        works = await fleet.work(30)

        for code in (errno.EIO, errno.EROFS, errno.ESTALE):
            SickDisk.says = code
            for work in works[:10]:
                await fleet.reward(scored(answered(work, "a"), 1.0))
            works = works[10:]
            await fleet.submit(Task(task_id=f"new-{code}", input="x"))
            await settled(HOUR_S / 1000 / 3)
            assert fleet.logged() == []
        SickDisk.says = 0

        results = await fleet.results(30)
        await until(lambda: len(fleet.assigned()) == 33)
        assert {result.status for result in results} == {"ok"}
        assert len({line.task_id for line in fleet.logged()}) == 30
        assert {how for (_, how) in fleet.bus.outcomes} == {"acked"}
        assert list(fleet.bus.waiting("dead-letters")) == []
        await until(lambda: fleet.orchestrator.trouble() is None and fleet.bus.trouble() is None)


async def test_a_log_that_took_nothing_is_ready_again_without_another_message(tmp_path: Path) -> None:
    async with house(tmp_path) as fleet:
        ledger = fleet.orchestrator.ledger
        await fleet.submit(Task(task_id="t1", input="x" * 200_000))
        await fleet.work()
        await until(lambda: ledger.find("t1") is not None)

        with files_no_larger_than(active_path(tmp_path, ASSIGNMENTS).stat().st_size):
            with pytest.raises(StorageUnavailable):
                await fleet.orchestrator.parts.intake.submit(Task(task_id="t2", input="y"))
            await until(lambda: fleet.orchestrator.trouble() is not None)

        await until(lambda: fleet.orchestrator.trouble() is None)


async def test_fewer_answers_are_asked_for_once_one_is_proved_as_good_as_the_group(tmp_path: Path) -> None:
    async with house(tmp_path, adaptive_samples=1, adaptive_margin=0.5) as one:
        sizes = []
        for number in range(40):
            await one.submit(Task(task_id=f"t{number}", input="x"))
            work = (await one.work(number + 1))[number]
            sizes.append(work.sampling.n)
            answers = ["a"] * work.sampling.n
            await one.reward(scored(answered(work, *answers), *[1.0] * len(answers)))
            await one.results(number + 1)
        await one.submit(Task(task_id="asks", input="x", samples=2))
        asked = (await one.work(41))[40]
        status = await one.orchestrator.parts.overview.status()

    assert (sizes[0], 1 in sizes) == (2, True)
    assert {(line.sampling.n, line.sampling.lowered_from) for line in one.logged()} == {(1, 2), (2, None)}
    assert (asked.sampling.n, asked.sampling.lowered_from) == (2, None)
    assert status.agents[0].samples.now == 1
    assert status.agents[0].samples.saved_samples == sizes.count(1)
    assert status.quality[0].served.mean == 1.0
