"""The gate's roll call: only replicas that are there count. And how it asks: few golden tasks at a time.

Leaves out what it makes of the answers: tests/ratchet/experiments/test_shadow.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from time import monotonic

import pytest

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import HIGH_PRIORITY, events_topic, fleet_topology, work_queue
from ratchet.service.errors import NotJudged, OtherModel
from schemas.messages.adapter_event import AdapterEvent, AdapterReport
from schemas.messages.base import BaseModelIdentity
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.interaction import Interaction
from schemas.records.registry import AdapterEntry
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.gate import POLL_EVERY_S, Gate
from services.orchestrator.promotion.own_tasks import OwnTasks
from services.orchestrator.promotion.replicas import Announcer, Replicas
from services.orchestrator.promotion.shadow_gate import ShadowGate
from services.orchestrator.settings import OrchestratorSettings
from tests.memory_bus import MemoryBus
from tests.ratchet.adapters.making_adapters import NOON, published
from tests.ratchet.adapters.making_decisions import decided
from tests.services.trainer.making_logs import line
from tests.waiting import settled, until

AGENT = "small"
ANSWER = [Interaction.decode(line("g", 0))]
EXPIRED = [Interaction.decode(line("g", None, response=None, score=None, status="expired", group_size=0))]


async def idle(_: Delivery) -> None:
    """A replica that is never given Work."""


class Fleet:
    """A gate before a candidate, and replicas that say what they are told to. The clock on the wall stands still."""

    def __init__(self, folder: Path) -> None:
        self.bus = MemoryBus(fleet_topology((AGENT,)))
        self.replicas = Replicas()
        self.announced: list[datetime] = []
        self.asked: list[Task] = []
        """Golden tasks, as they were asked."""
        self.own_tasks = OwnTasks()
        self.ahead_s = 0.0
        """By which the gate's seconds are."""
        self.programs_answer = False
        arms = Arms(AGENT)
        self.announcer = Announcer(arms, self.bus, lambda: NOON)
        registry = decided(RegistryStore(folder), registration(published(folder), folder))
        arms.follow(registry.agent(AGENT), None)
        self.candidate: AdapterEntry = registry.agent(AGENT).versions["v1.0.1"]
        settings = OrchestratorSettings(
            logs_dir=folder,
            adapters_dir=folder,
            adapter_max_rank=64,
            golden_deadline_s=600.0,
            replay_prompts=8,
            validation_timeout_s=10.0,
        )
        shadow = ShadowGate(
            arms,
            self._ask,
            self.own_tasks,
            settings,
            self._read_logged,
            first_tasks=list,
            revision=lambda: 1,
            clock=lambda: NOON,
            seconds=lambda: monotonic() + self.ahead_s,
        )
        self.gate = Gate(
            arms,
            self.announcer,
            self.replicas,
            self.bus,
            shadow,
            settings,
            programs_answer=lambda: self.programs_answer,
            seconds=lambda: monotonic() + self.ahead_s,
        )

    async def _read_logged(self, task_id: str) -> None:
        """Nothing is in the log."""

    async def _ask(self, task: Task, _arm: Callable[[int], Arm]) -> None:
        self.asked.append(task)

    async def replica_joins(self) -> None:
        await self.bus.consume(work_queue(AGENT), idle, prefetch=1)

    def hear(self, delivery: Delivery) -> None:
        announced_at = AdapterEvent.decode(delivery.body).metadata.timestamp
        assert announced_at is not None
        self.announced.append(announced_at)

    def loaded(self, replica: str, base: BaseModelIdentity | None = None) -> None:
        """This replica, which runs this model, answers the last announcement."""
        report = AdapterReport(
            agent_id=AGENT,
            replica=replica,
            revision=1,
            announced_at=self.announced[-1],
            base=base,
            loaded=(self.candidate.version,),
        )
        self.replicas.record(report, monotonic())


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Of two replicas."""
    fleet = Fleet(tmp_path)
    await fleet.bus.start()
    await fleet.bus.listen(events_topic(AGENT), fleet.hear)
    await fleet.replica_joins()
    await fleet.replica_joins()
    yield fleet
    await fleet.bus.stop(0)


async def test_a_replica_that_died_does_not_stand_in_for_one_that_still_loads(fleet: Fleet) -> None:
    # given one that had loaded the candidate a moment ago and is gone, while another took its place
    await fleet.announcer.announce()
    fleet.loaded("dead")

    # when only one of the two that are there has loaded it
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 2)
    fleet.loaded("quick")
    await settled(2 * POLL_EVERY_S)
    # then the gate waits
    assert not validation.done()

    # and it opens once the other has
    fleet.loaded("slow")
    assert (await validation).passed


async def test_the_roll_is_called_again_when_the_number_of_replicas_changes(fleet: Fleet) -> None:
    # given one that answered the first call and then made room for two others
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 1)
    fleet.loaded("gone")
    await fleet.replica_joins()
    await until(lambda: len(fleet.announced) == 2)

    # when two of the three that are there have loaded the candidate, then the gate waits for the third
    fleet.loaded("one")
    fleet.loaded("two")
    await settled(2 * POLL_EVERY_S)
    assert not validation.done()
    fleet.loaded("three")
    assert (await validation).passed


async def test_runners_that_take_an_agents_tasks_are_no_replicas_of_it(fleet: Fleet) -> None:
    # given two runners, and one replica of the agent, which is known once it has answered
    fleet.programs_answer = True
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 1)
    fleet.loaded("one")
    await until(lambda: len(fleet.announced) == 2)

    fleet.loaded("one")

    assert (await validation).passed


async def test_announcements_follow_one_another_though_the_clock_stands_still(fleet: Fleet) -> None:
    moments = [await fleet.announcer.announce() for _ in range(3)]

    assert moments == fleet.announced == sorted(set(moments))


@pytest.mark.parametrize(("samples", "at_once"), [(None, 1), (16, 1), (3, 2)])
async def test_users_wait_for_a_few_golden_answers_at_most(
    fleet: Fleet, tmp_path: Path, samples: int | None, at_once: int
) -> None:
    # given a golden set that says it is the most urgent
    task = json.dumps({"task_id": "g", "input": "x", "priority": 9} | ({"samples": samples} if samples else {}))
    (tmp_path / AGENT / "golden.jsonl").write_text(f"{task}\n" * 6)
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 1)
    fleet.loaded("one")
    fleet.loaded("two")

    # when they are answered one by one, then no more are asked at a time of the candidate, and of its parent
    most = [min(12, answered + 2 * at_once) for answered in range(12)]
    for answered, wanted in enumerate(most):
        await until(lambda wanted=wanted: len(fleet.asked) == wanted)
        await settled(0)
        fleet.own_tasks.resolve(fleet.asked[answered].task_id, ANSWER)

    # and they go past users' backlog, no further than that
    assert {task.priority for task in fleet.asked} == {HIGH_PRIORITY}
    assert (await validation).passed


async def test_the_golden_set_has_one_deadline_after_which_nothing_more_is_asked(fleet: Fleet, tmp_path: Path) -> None:
    # given a golden set that a backlog stands before, and of whose time a sixth is left once the first are answered
    (tmp_path / AGENT / "golden.jsonl").write_text('{"task_id": "g", "input": "x"}\n' * 6)
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 1)
    fleet.loaded("one")
    fleet.loaded("two")
    await until(lambda: len(fleet.asked) == 2)
    fleet.ahead_s = 500.0
    for task in tuple(fleet.asked):
        fleet.own_tasks.resolve(task.task_id, ANSWER)
    await until(lambda: len(fleet.asked) == 4)

    # then what is asked late has the less time
    left_s = [(task.deadline - NOON).total_seconds() for task in fleet.asked if task.deadline]
    assert left_s == [pytest.approx(600, abs=60)] * 2 + [pytest.approx(100, abs=60)] * 2

    # when it is over
    fleet.ahead_s = 600.0
    for task in fleet.asked[2:]:
        fleet.own_tasks.resolve(task.task_id, EXPIRED)

    # then nothing more is asked, and the candidate is judged by what was answered
    assert "no harm is proved: 1 prompts" in (await validation).reason
    assert len(fleet.asked) == 4


async def test_a_candidate_waits_where_nothing_was_answered_in_time(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / AGENT / "golden.jsonl").write_text('{"task_id": "g", "input": "x"}\n' * 2)
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 1)
    fleet.loaded("one")
    fleet.loaded("two")
    await until(lambda: len(fleet.asked) == 2)
    fleet.ahead_s = 600.0

    for task in tuple(fleet.asked):
        fleet.own_tasks.resolve(task.task_id, EXPIRED)

    with pytest.raises(NotJudged, match="none of the 2 prompts got a scored answer in time"):
        await validation


async def test_what_was_trained_on_another_model_is_not_refused_for_it_though_its_agent_says_so_late(
    fleet: Fleet,
) -> None:
    validation = asyncio.create_task(fleet.gate.validate(fleet.candidate))
    await until(lambda: len(fleet.announced) == 1)
    fleet.loaded("one", BaseModelIdentity(name="scripted"))

    with pytest.raises(OtherModel, match="the agent runs scripted"):
        await validation
    assert len(fleet.announced) == 1
    with pytest.raises(OtherModel):
        await fleet.gate.validate(fleet.candidate)
    assert len(fleet.announced) == 1


async def test_a_candidate_waits_while_any_replica_runs_another_model_whoever_spoke_last(fleet: Fleet) -> None:
    await fleet.announcer.announce()

    fleet.loaded("one", BaseModelIdentity(name="scripted"))
    fleet.loaded("two", fleet.candidate.base)

    assert "the agent runs scripted" in (fleet.gate.other_model(fleet.candidate) or "")
