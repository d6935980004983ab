"""A Work that a program answers, with an agent's HTTP between recorder and engine: what is published, and how often."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, fleet_topology
from ratchet.http.server.application import application
from ratchet.programs.task_input import LONGEST_ARGUMENT, unfit_argument
from ratchet.rollouts.agent import Model, agent_client, served_model
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.order import RecordOrder, queue_name
from ratchet.rollouts.rollout import BudgetSpent
from ratchet.rollouts.work import RecordedWork, budget_of, program_of, time_for
from ratchet.service.errors import EngineError
from schemas.messages.response import Response
from schemas.messages.result import Result
from schemas.messages.task import ChatMessage, Constraints, Task
from schemas.messages.work import Sampling, Work
from services.agent.engines.engine import IdsRequest, TokenPiece
from services.agent.engines.scripted import EchoEngine
from services.agent.settings import AgentSettings
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan
from services.trainer.data.samples import load_samples
from services.trainer.data.selection import select
from tests.memory_bus import MemoryBus
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.services.agent.test_agent_worker import agent
from tests.services.orchestrator.house import house, scored
from tests.serving import serving
from tests.waiting import until

MakeWork = Callable[..., Work]
END = SPECIAL.index("<|im_end|>")

PROGRAM = """
import json, os, sys, urllib.request
asked = sys.stdin.read()
messages = []
for text in (asked, sys.argv[1]):
    messages.append({"role": "user", "content": text})
    tools = [{"type": "function", "function": {"name": name}} for name in sys.argv[2:]]
    offered = {"tools": tools} if tools else {}
    body = json.dumps({"model": "any", "messages": messages, "temperature": 0.2, "seed": 7} | offered).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
print(messages[-1]["content"], os.environ["RATCHET_SAMPLE"])
"""


class Coins(EchoEngine):
    """Says the same each time; keeps what it was asked. `breaks`: it fails once, behind so many tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[IdsRequest] = []
        self.breaks: int | None = None

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        self.asked.append(request)
        whole = [*codec().encode("A coin in a box."), END]
        before = next(n for n in range(len(whole), -1, -1) if list(request.prompt_ids[-n:]) == whole[:n] or n == 0)
        for number, token in enumerate(whole[before:], 1):
            yield TokenPiece(0, (token,), (-token / 4096,))
            if number == self.breaks:
                self.breaks = None
                raise EngineError("its process was killed")
        yield TokenPiece(0, (), (), "stop")


def order(*command: str, urls: tuple[str, ...] = ()) -> RecordOrder:
    task = Task(task_id="t-1", input="What is in it?")
    return RecordOrder(task=task, command=command, amqp_url="amqp://nowhere", agent_urls=urls)


@asynccontextmanager
async def recorded(
    settings: AgentSettings,
    engine: EchoEngine,
    *command: str,
    bus: MemoryBus | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[tuple[RecordedWork, MemoryBus]]:
    recorder = Recorder()
    if bus is None:
        bus = MemoryBus(fleet_topology(("small",)))
        await bus.start()
    async with agent(settings, engine) as (worker, _), recorder.serving() as base_url:
        app = application("agent", worker.routers(), settings, worker.trouble)
        async with serving(app) as url, agent_client(None) as http:
            ordered = order(*command, urls=(url,))
            model = Model(await served_model(http, url), template("qwen2_5"), (url,))
            work = RecordedWork(*(ordered, bus, http, model, recorder, base_url), tell=tell, of_tools=["no tools"])
            yield work, bus
            await work.stop()


def delivery(work: Work) -> Delivery:
    return Delivery("reply.mine", work.encode(), Work.TYPE)


async def test_a_group_of_runs_is_one_response_however_often_its_work_comes(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine, told = Coins(), list[str]()
    work = make_work(input="What is in it?", sampling=Sampling(n=3, temperature=0.9, max_tokens=50))
    command = (sys.executable, "-c", PROGRAM, "Sure?", "look")
    async with recorded(settings, engine, *command, tell=told.append) as (here, bus):
        await asyncio.gather(here.handle(delivery(work)), here.handle(delivery(work)))
        await here.handle(delivery(work))

    (published,) = bus.deliveries_published(RESPONSES)
    response = Response.decode(published.body)
    assert (response.work, published.message_id, response.engine) == (work, "t-1/response", "echo")
    assert [sample.text for sample in response.samples] == [f"A coin in a box. {number}" for number in range(3)]
    for sample in response.samples:
        assert sample.segments is not None and sample.usage is not None
        (segment,) = sample.segments
        assert (sample.status, len(segment.spans), sample.usage.calls) == ("finished", 2, 2)
        assert sample.usage.overruled == {"seed": (7.0,), "temperature": (0.2,)}
    assert {(one.sampling.temperature, one.sampling.n, one.adapter, one.keep) for one in engine.asked} == {
        (0.9, 1, None, True)
    }
    assert sorted(told) == ["1 of 3 runs have ended", "2 of 3 runs have ended", "note: no tools"]


async def test_an_engine_that_breaks_off_leaves_no_trace_in_the_rollout(
    settings: AgentSettings, make_work: MakeWork
) -> None:
    engine, told = Coins(), list[str]()
    engine.breaks = 3
    async with recorded(settings, engine, sys.executable, "-c", PROGRAM, "Sure?", tell=told.append) as (here, bus):
        await here.handle(delivery(make_work(sampling=Sampling(max_tokens=50))))

    (sample,) = Response.decode(bus.deliveries_published(RESPONSES)[0].body).samples
    whole = (*codec().encode("A coin in a box."), END)
    assert sample.segments is not None and len(engine.asked) == 3
    (segment,) = sample.segments
    assert [segment.completion_ids[start:stop] for start, stop in segment.spans] == [whole] * 2
    assert engine.asked[1].prompt_ids == (*engine.asked[0].prompt_ids, *whole[:3])
    assert told == [], "one run, without tools"


async def test_runs_that_no_engine_answered_are_lost(settings: AgentSettings, make_work: MakeWork) -> None:
    class Away(Coins):
        async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
            raise EngineError("its process was killed")
            yield

    now = datetime.now(UTC)
    async with recorded(settings, Away(), sys.executable, "-c", PROGRAM, "Sure?") as (here, bus):
        await here.handle(delivery(make_work(deadline=now + timedelta(seconds=2), sampling=Sampling(n=2))))

    samples = Response.decode(bus.deliveries_published(RESPONSES)[0].body).samples
    assert [(sample.status, sample.segments) for sample in samples] == [("lost", None)] * 2


def test_a_program_is_told_its_task_and_nothing_that_is_not_its_affair(make_work: MakeWork) -> None:
    work = make_work(input="sort: ba", reference="ab", criteria="in order")
    given = {"PATH": "/bin", "RATCHET_AMQP_URL": "amqp://user:secret@host", "RATCHET_API_TOKEN": "eyJ"}

    program = program_of(("agent", "--ask={input}", "{input}"), work, 2, given)

    assert program.command == ("agent", "--ask=sort: ba", "sort: ba")
    assert program.stdin == "sort: ba"
    assert program.environment == {"PATH": "/bin", "RATCHET_TASK_ID": "t-1", "RATCHET_SAMPLE": "2"}
    chat = make_work(input=(ChatMessage(role="user", content="é"),))
    assert program_of(("agent",), chat, 0, {}).stdin == '[{"role": "user", "content": "é"}]'


@pytest.mark.parametrize(
    ("left_s", "limit_s", "seconds"), [(3600, None, 3540), (100, None, 90), (100, 30, 30), (100, 99, 90), (-5, None, 0)]
)
def test_a_run_ends_early_enough_to_be_scored(make_work: MakeWork, left_s: Any, limit_s: Any, seconds: float) -> None:
    now = datetime(2026, 1, 15, tzinfo=UTC)
    work = make_work(deadline=now + timedelta(seconds=left_s))

    assert time_for(work, now, limit_s) == pytest.approx(seconds)
    assert time_for(work.model_copy(update={"constraints": Constraints(seconds=20)}), now, limit_s) == pytest.approx(
        min(20, seconds)
    )


def test_a_run_is_held_to_the_constraints_of_its_task(make_work: MakeWork) -> None:
    budget = budget_of(make_work(constraints=Constraints(calls=1, tokens=2)))

    budget.take_call()
    with pytest.raises(BudgetSpent, match="more than 1 times"):
        budget.take_call()
    assert budget.tokens_left == 2
    assert budget_of(make_work()).tokens_left is None


def test_an_input_that_no_argument_can_hold_is_told_before_anything_runs() -> None:
    long = "x" * (LONGEST_ARGUMENT + 1)

    assert unfit_argument(("agent",), long) is None
    assert unfit_argument(("agent", "{input}"), "x") is None
    assert "too long" in (unfit_argument(("agent", "--ask={input}"), long) or "")
    assert "NUL" in (unfit_argument(("agent", "{input}"), "a\0b") or "")


def test_a_task_has_a_queue_of_its_own_whatever_its_id() -> None:
    names = [queue_name(task_id) for task_id in ("a", "a ", "ä/é", "x" * 200)]

    assert len(set(names)) == 4
    for name in names:
        assert Task(task_id="t", input="x", work_to=f"fleet.{name}").work_to == f"fleet.{name}"


async def test_a_task_that_is_answered_here_is_logged_once_with_the_arm_it_was_given(
    settings: AgentSettings, tmp_path: Path
) -> None:
    """The orchestrator's side of it is real too; only the broker is not, and the score is said by hand."""
    async with (
        house(tmp_path / "logs") as fleet,
        recorded(settings, Coins(), sys.executable, "-c", PROGRAM, "Sure?", bus=fleet.bus) as (here, _),
    ):
        own = fleet.bus.open_reply_queue("reply.mine")
        task = Task(task_id="t-1", input="What is in it?", samples=2, max_tokens=50, work_to="reply.mine")
        await fleet.submit(task, reply_to="reply.mine")
        await until(lambda: own)
        await asyncio.gather(here.handle(own[0]), here.handle(own[0]))
        (published,) = fleet.bus.deliveries_published(RESPONSES)
        response = Response.decode(published.body)
        await fleet.reward(scored(response, 0.25, 1.0))
        await fleet.reward(scored(response, 0.25, 1.0))
        await until(lambda: len(own) == 2)
        result = Result.decode(own[1].body)

        assert (result.status, result.response, result.score) == ("ok", "A coin in a box. 1", 1.0)
        lines = fleet.logged()
        assert [(line.sample, line.score, line.sample_status) for line in lines] == [
            (0, 0.25, "finished"),
            (1, 1.0, "finished"),
        ]
        assert [line.segments for line in lines] == [sample.segments for sample in response.samples]
        assert {(line.arm.sequence, line.arm.adapter_version, line.completion_ids) for line in lines} == {
            (0, "v1.0.0", None)
        }
        assert fleet.bus.deliveries_published("work.small") == []

    policy = DataPolicy(agent_id="small", versions={"v1.0.0": None})
    chosen = select(JournalScan(tmp_path / "logs", policy).read(0, None), policy)
    rows = load_samples(tmp_path / "logs", chosen.groups)
    assert [(row.score, row.tokens, row.broke) for row in rows] == [
        (score, sample.sampled_tokens, None) for score, sample in zip((0.25, 1.0), response.samples, strict=True)
    ]
