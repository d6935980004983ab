from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.adapters.folder import adapter_sha256
from ratchet.bus.in_hand import NEVER
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import DEAD_LETTERS, RESPONSES, cancellations_topic, fleet_topology, work_queue
from ratchet.service.deadline_time import DeadlineTime
from ratchet.service.errors import EngineError, PromptTooLong, Reject, Retry
from schemas.messages.response import Response
from schemas.messages.task import Constraints, TaskCancelled
from schemas.messages.work import Arm, Sampling, Work
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.scripted import EchoEngine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from tests.memory_bus import MemoryBus
from tests.waiting import settled, until

MakeWork = Callable[..., Work]


class ScriptedEngine(EchoEngine):
    """Echoes, but fails, hesitates or is away as the test says; keeps every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[GenerationRequest]] = []
        self.answered: list[str] = []
        self.errors: dict[str, EngineError] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.away: str | None = None

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        self.calls.append(list(requests))
        await self.gate.wait()
        self.answered += [str(request.prompt) for request in requests]
        answers = await super().generate(requests)
        return [self.errors.get(str(request.prompt), answer) for request, answer in zip(requests, answers, strict=True)]

    def trouble(self) -> str | None:
        return self.away


@asynccontextmanager
async def agent(
    settings: AgentSettings, engine: EchoEngine, time: DeadlineTime | None = None
) -> AsyncIterator[tuple[AgentWorker, MemoryBus]]:
    bus = MemoryBus(fleet_topology(("small",)))
    worker = AgentWorker(settings, bus, engine, time)
    await bus.start()
    await worker.start()
    for subscription in worker.subscriptions():
        await bus.consume(subscription.queue, subscription.handler, prefetch=subscription.prefetch)
    yield worker, bus
    await bus.stop(1.0)
    await worker.stop()


def delivery(work: Work) -> Delivery:
    return Delivery(work_queue("small"), work.encode(), Work.TYPE)


def responses(bus: MemoryBus) -> list[Response]:
    return [Response.decode(published.body) for published in bus.deliveries_published(RESPONSES)]


async def test_a_work_is_answered_with_a_group_and_carried_along(settings: AgentSettings, make_work: MakeWork) -> None:
    work = make_work(sampling=Sampling(n=3))
    async with agent(settings, EchoEngine()) as (worker, bus):
        await worker.handle(delivery(work))

        (response,) = responses(bus)
        assert response.response == "sort: ba"
        assert [sample.text for sample in response.samples] == ["sort: ba"] * 3
        assert response.work == work
        assert (response.agent_id, response.engine, response.adapter_version) == ("small", "echo", "v1.0.0")
        assert response.sampling == work.sampling
        assert response.error is None
        assert response.metadata.timestamp is not None
        assert bus.deliveries_published(RESPONSES)[0].message_id == "t-1/response"
        assert bus.deliveries_published(RESPONSES)[0].type == "response.v1"


async def test_time_in_the_queue_is_counted_from_admission_and_never_negative(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    now = datetime.now(UTC)
    async with agent(settings, EchoEngine()) as (worker, bus):
        await worker.handle(delivery(make_work("late", admitted_at=now - timedelta(seconds=2))))
        await worker.handle(delivery(make_work("clock-ahead", admitted_at=now + timedelta(seconds=9))))

        late, ahead = responses(bus)
        assert 2.0 <= late.latencies.queue_s < 4.0
        assert ahead.latencies.queue_s == 0.0


async def test_the_queues_of_both_priorities_are_served(settings: AgentSettings, make_work: MakeWork) -> None:
    async with agent(settings, EchoEngine()) as (_, bus):
        for task_id, priority in (("low", 0), ("high", 9)):
            work = make_work(task_id, priority=priority)
            await bus.publish(work_queue("small", priority=priority), work.encode(), type=Work.TYPE, message_id=task_id)
        await until(lambda: len(responses(bus)) == 2)
        assert {response.task_id for response in responses(bus)} == {"low", "high"}


@pytest.mark.parametrize("body", [b"not json", b"{}", b'{"task_id": "t"}'])
async def test_what_is_no_work_is_rejected_with_the_reason(settings: AgentSettings, body: bytes) -> None:
    async with agent(settings, EchoEngine()) as (worker, _):
        with pytest.raises(Reject, match=r"work\.v1"):
            await worker.handle(Delivery("work.small", body))


async def test_the_work_of_another_agent_is_rejected(settings: AgentSettings, make_work: MakeWork) -> None:
    async with agent(settings, EchoEngine()) as (worker, _):
        with pytest.raises(Reject, match="for agent 'big'"):
            await worker.handle(delivery(make_work(agent_id="big")))


async def test_a_task_that_was_cancelled_is_not_generated(settings: AgentSettings, make_work: MakeWork) -> None:
    engine = ScriptedEngine()
    async with agent(settings, engine) as (worker, bus):
        body = TaskCancelled(task_id="t-1", agent_id="small").encode()
        await bus.broadcast(cancellations_topic("small"), body, type=TaskCancelled.TYPE, message_id="c")
        await worker.handle(delivery(make_work("t-1")))
        await worker.handle(delivery(make_work("t-2")))

        assert [response.task_id for response in responses(bus)] == ["t-2"]
        assert len(engine.calls) == 1


async def test_a_task_past_its_deadline_is_not_generated(settings: AgentSettings, make_work: MakeWork) -> None:
    engine = ScriptedEngine()
    async with agent(settings, engine) as (worker, bus):
        await worker.handle(delivery(make_work(deadline=datetime.now(UTC) - timedelta(seconds=1))))
        assert responses(bus) == []
        assert engine.calls == []


@pytest.mark.parametrize("days", [1, -1, 365, -365])
async def test_a_clock_that_is_set_drops_no_task_that_has_time_left(
    settings: AgentSettings, make_work: MakeWork, days: int
) -> None:
    clock = [datetime.now(UTC)]

    def wall() -> float:
        return clock[0].timestamp()

    async with agent(settings, EchoEngine(), DeadlineTime(wall, lambda: 7.0)) as (worker, bus):
        for name, step in (("before", days), ("meanwhile", -days), ("after", 0)):
            work = make_work(task_id=name, admitted_at=clock[0], deadline=clock[0] + timedelta(minutes=1))
            clock[0] += timedelta(days=step)
            await worker.handle(delivery(work))
        assert [response.task_id for response in responses(bus)] == ["before", "meanwhile", "after"]


async def test_a_failure_no_retry_mends_is_a_response_with_the_error(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine = ScriptedEngine()
    engine.errors["long"] = PromptTooLong("900 tokens, 512 fit")
    async with agent(settings, engine) as (worker, bus):
        await worker.handle(delivery(make_work(input="long")))

        (response,) = responses(bus)
        assert response.error == "900 tokens, 512 fit"
        assert (response.response, response.samples) == ("", ())
        assert response.work is not None


class NeverDone(ScriptedEngine):
    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_an_agent_without_programs_is_held_to_the_seconds_of_constraints(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    given = Constraints(seconds=0.05, calls=1, tokens=5, tools=())
    async with agent(settings, NeverDone()) as (worker, bus):
        await worker.handle(delivery(make_work(constraints=given)))
        assert responses(bus)[0].error == "constraints.seconds: it was not generated within 0.05 s"

    async with agent(settings, ScriptedEngine()) as (worker, bus):
        await worker.handle(delivery(make_work(constraints=given.model_copy(update={"seconds": 600.0}))))
        assert responses(bus)[0].error is None


async def test_a_failure_that_may_pass_is_retried_and_then_answered(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine = ScriptedEngine()
    engine.errors["sort: ba"] = EngineError("the server answered 500")
    async with agent(settings, engine) as (worker, bus):
        with pytest.raises(Retry, match="task t-1: the server answered 500"):
            await worker.handle(delivery(make_work()))

        engine.errors.clear()
        await worker.handle(delivery(make_work()))
        assert len(responses(bus)) == 1


async def test_waiting_for_an_engine_that_is_away_is_no_hang(settings: AgentSettings, make_work: MakeWork) -> None:
    engine = ScriptedEngine()
    async with agent(settings, engine) as (worker, _):
        asked = {subscription.advanced_at() for subscription in worker.subscriptions()}
        engine.away, before = "it loads its model", time.monotonic()
        waiting = asyncio.create_task(worker.handle(delivery(make_work())))
        await asyncio.sleep(0)
        waited = {subscription.advanced_at() for subscription in worker.subscriptions()}
        waiting.cancel()

    assert asked == {NEVER}
    assert len(waited) == 1 and before <= waited.pop() <= time.monotonic()


async def test_while_the_engine_is_away_work_waits_and_costs_no_attempt(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine = ScriptedEngine()
    engine.away = "the server does not answer"
    async with agent(settings, engine) as (worker, bus):
        assert worker.trouble() == "the server does not answer"
        handling = asyncio.create_task(worker.handle(delivery(make_work())))
        await settled()
        assert not handling.done()

        engine.away = None
        await handling
        assert len(responses(bus)) == 1


async def test_a_redelivery_is_answered_with_the_same_bytes_and_no_second_generation(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine = ScriptedEngine()
    async with agent(settings, engine) as (worker, bus):
        engine.gate.clear()
        first = asyncio.create_task(worker.handle(delivery(make_work())))
        again = asyncio.create_task(worker.handle(delivery(make_work())._replace(redelivered=True)))
        await settled(0.01)
        engine.gate.set()
        await asyncio.gather(first, again)
        await worker.handle(delivery(make_work())._replace(redelivered=True))

        assert len(engine.calls) == 1
        assert len({published.body for published in bus.deliveries_published(RESPONSES)}) == 1
        assert len(bus.deliveries_published(RESPONSES)) == 3


async def test_a_handler_cut_off_by_the_bus_leaves_its_work_to_the_redelivery(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine = ScriptedEngine()
    async with agent(settings, engine) as (worker, bus):
        engine.gate.clear()
        first = asyncio.create_task(worker.handle(delivery(make_work())))
        await until(lambda: engine.calls)
        again = asyncio.create_task(worker.handle(delivery(make_work())._replace(redelivered=True)))
        await settled(0.01)
        assert len(engine.calls) == 1
        first.cancel()
        engine.gate.set()
        await again

        assert len(engine.calls) == 2
        assert len(responses(bus)) == 1


async def test_a_candidate_answers_with_its_adapter_under_a_name_of_its_content(
    settings: AgentSettings, make_work: MakeWork, write_adapter: Callable[..., Path]
) -> None:
    sha256 = adapter_sha256(write_adapter("v1.0.1"))
    arm = Arm(sequence=0, adapter_version="v1.0.1", adapter_sha256=sha256, is_candidate=True, propensity=0.05)
    async with agent(settings, EchoEngine()) as (worker, bus):
        await worker.handle(delivery(make_work(arm=arm)))

        (response,) = responses(bus)
        assert response.response == f"small-v1.0.1-{sha256[:8]}: sort: ba"
        assert (response.adapter_version, response.adapter_sha256) == ("v1.0.1", sha256)


@pytest.mark.parametrize("version", ["v9.9.9", "../../../etc", "v1.0.1/../v1.0.1", ""])
async def test_an_adapter_that_is_not_there_fails_the_task_with_the_reason(
    settings: AgentSettings, make_work: MakeWork, write_adapter: Callable[..., Path], version: str
) -> None:
    write_adapter("v1.0.1")
    async with agent(settings, EchoEngine()) as (worker, bus):
        await worker.handle(delivery(make_work(arm=Arm(sequence=0, adapter_version=version))))
        (response,) = responses(bus)
        assert response.error is not None and "adapter" in response.error
        assert response.samples == ()


async def test_bad_messages_end_in_dead_letters_and_good_ones_go_on(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    async with agent(settings, EchoEngine()) as (_, bus):
        await bus.publish("work.small", json.dumps({"task_id": 7}).encode(), type=Work.TYPE, message_id="bad")
        await bus.publish("work.small", make_work().encode(), type=Work.TYPE, message_id="good")
        await until(lambda: len(responses(bus)) == 1 and len(bus.waiting(DEAD_LETTERS)) == 1)


async def test_an_agent_that_programs_answer_for_serves_its_model_and_takes_no_tasks(
    settings: AgentSettings, tmp_path: Path
) -> None:
    file = tmp_path / "programs.toml"
    file.write_text('[agents.small]\nprograms = ["shell"]\n')

    async with agent(settings.model_copy(update={"programs": file}), EchoEngine()) as (worker, _):
        assert worker.subscriptions() == []
        assert worker.trouble() is None
    async with agent(settings, EchoEngine()) as (worker, _):
        assert len(worker.subscriptions()) == 2
