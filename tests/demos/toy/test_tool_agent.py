"""The tool agent, recorded over HTTP: what became of its workspace is its answer, all that was said one segment."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import pytest

from demos.tools.agent import MOST_CALLS, PROGRAM, RecordedAgent, converse, http_client
from demos.toy.recipe import FLAWLESS
from demos.toy.tools.task import ToolTask, Workspace, tool_task
from demos.toy.tools.teacher import demonstration
from demos.toy.tools.tokenizer import END, READ, TEXT_CALLED, tool_tokenizer
from ratchet.models.tokenization import chat_template
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.recording import record
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.errors import Reject
from schemas.messages.response import Sample
from schemas.messages.work import Arm, Sampling, Work
from tests.demos.toy.test_tool_model import sampled_turns
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine

TOKENIZER = tool_tokenizer(1024)
TASK = tool_task(random.Random(7), "held_out")


def work_of(text: str) -> Work:
    now = datetime.now(UTC)
    return Work(
        task_id="t-1",
        input=text,
        agent_id="small",
        sampling=Sampling(),
        arm=Arm(adapter_version="v1.0.0", sequence=1),
        admitted_at=now,
        deadline=now + timedelta(minutes=5),
    )


def rollout_of(engine: ScriptedEngine) -> RecordedRollout:
    template = chat_template(TOKENIZER, {TOKENIZER.eos_token_id})
    assert template is not None
    return RecordedRollout(template, engine, model="small@v1.0.0")


def saying(turns: Sequence[str]) -> ScriptedEngine:
    """A model that says the next of these turns at each call."""
    left = iter(turns)
    return ScriptedEngine(lambda prompt: TOKENIZER.encode(next(left)))


async def sample_of_run(task: ToolTask, engine: ScriptedEngine) -> Sample:
    recorder, rollout = Recorder(), rollout_of(engine)
    async with recorder.serving() as base_url, http_client() as http:
        agent = RecordedAgent(recorder, base_url, http)
        sample, _ = await record(rollout, PROGRAM, partial(agent.run, work_of(task.input)))
        return sample


async def test_a_careful_model_does_the_task_and_is_recorded_token_for_token() -> None:
    text = demonstration(TASK, FLAWLESS, random.Random(1))
    engine = saying(sampled_turns(text))
    sample = await sample_of_run(TASK, engine)

    assert (sample.text, sample.status) == (TASK.answer, "finished")
    assert sample.segments is not None
    (segment,) = sample.segments
    assert TOKENIZER.decode([*segment.prompt_ids, *segment.completion_ids]) == text
    assert [token.logprob for tokens in engine.sampled for token in tokens] == list(segment.logprobs)
    assert len(segment.spans) == len(sampled_turns(text))


async def test_with_blanked_tools_the_model_is_told_nothing() -> None:
    blanked = ToolTask(TASK.workspace, blanked=True)
    turns = sampled_turns(demonstration(TASK, FLAWLESS, random.Random(1)))
    sample = await sample_of_run(blanked, saying(turns))

    assert sample.segments is not None
    brought = [turn.content for turn in sample.segments[0].turns if turn.role == "tool"]
    assert brought == ["?"] * (len(turns) - 1)


async def test_a_model_that_never_ends_is_ended_and_one_that_babbles_has_done_nothing() -> None:
    for_ever = saying([f"{READ}a{TEXT_CALLED}{END}"] * 20)
    assert (await sample_of_run(TASK, for_ever)).text == '{"files": [], "hold": [], "said": ""}'
    assert len(for_ever.seen) == MOST_CALLS
    babble = await sample_of_run(TASK, saying([f"{READ}a{END}"]))
    assert '"files": []' in babble.text and babble.status == "finished"


async def test_an_engine_that_fails_loses_the_rollout() -> None:
    engine = saying(sampled_turns(demonstration(TASK, FLAWLESS, random.Random(1))))
    engine.fails_after = 2
    assert (await sample_of_run(TASK, engine)).status == "lost"


async def test_a_task_of_another_kind_is_rejected() -> None:
    recorder = Recorder()
    async with http_client() as http:
        with pytest.raises(Reject, match="no task of a workspace"):
            await RecordedAgent(recorder, "http://nowhere", http).run(work_of("sort: gbaec"), rollout_of(saying([])))


async def test_the_agent_speaks_plain_openai_with_its_tools(serve: Callable[..., httpx.AsyncClient]) -> None:
    asked: list[dict[str, object]] = []
    async with serve(asked) as http:
        said = await converse(http, "http://model/v1", "key", Workspace(TASK))
    assert said == "done"
    assert [tool["function"]["name"] for tool in asked[0]["tools"]] == ["read_file", "add", "write_file"]  # type: ignore
    first, second = (body["messages"] for body in asked)
    assert first == [{"role": "user", "content": TASK.question}]
    assert second[-1] == {"role": "tool", "tool_call_id": "c1", "content": TASK.files["a"]}  # type: ignore[index]


@pytest.fixture
def serve() -> Callable[..., httpx.AsyncClient]:
    """A model that calls one tool, then says "done"."""
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
    answers = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "assistant", "content": "done"}]

    def client(asked: list[dict[str, object]]) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(json.loads(request.content))
            return httpx.Response(200, json={"choices": [{"message": answers[len(asked) - 1]}]})

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))

    return client
