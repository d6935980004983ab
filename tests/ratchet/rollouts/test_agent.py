"""A fleet's agent as the recorder's engine: what is asked, and that an answer goes on where an agent broke off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest

from ratchet.dialects.dialect import ModelRequest
from ratchet.openai.transport import ContextTooLong
from ratchet.rollouts.agent import AgentRefused, AgentTokens, Model, agent_client
from ratchet.rollouts.recording import rollout_of
from schemas.api.generate import ServedModel
from schemas.messages.work import Arm, Sampling
from tests.making_work import work
from tests.ratchet.conversation.speakers import template

END = 2
ARM = Arm(adapter_version="v1.0.1", adapter_sha256="a" * 64, sequence=3)
SAMPLING = Sampling(n=4, temperature=0.7, top_p=0.9, max_tokens=9)


class Breaking(httpx.AsyncByteStream):
    """Lines, and then, without an end, a connection that is lost."""

    def __init__(self, lines: Sequence[bytes], *, broken: bool) -> None:
        self._lines = lines
        self._broken = broken

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            yield line
        if self._broken:
            raise httpx.ReadError("connection reset by peer")


def line(*ids: int, finish: str | None = None, error: str | None = None) -> bytes:
    told: dict[str, Any] = {"ids": ids, "logprobs": [-one / 8 for one in ids], "finish_reason": finish, "error": error}
    return json.dumps(told).encode() + b"\n"


Reply = httpx.Response | Exception


async def sampled(
    *replies: Reply | Callable[[], Reply], most: int = 20, stop: tuple[str, ...] = (), call: str | None = None
) -> tuple[list[int], list[Any], AgentTokens]:
    asked: list[Any] = []
    coming = iter(replies)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), json.loads(request.content)))
        reply = next(coming)
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, httpx.Response)
        return reply

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        urls = ("http://one", "http://two")
        engine = AgentTokens(http, urls, arm=ARM, sampling=SAMPLING, context=100, ends={END})
        found = [token async for token in engine.sample([5, 6], most, stop, None, call)]
        assert [token.logprob for token in found] == [-token.id / 8 for token in found]
        return [token.id for token in found], asked, engine


def whole(*lines: bytes) -> httpx.Response:
    return httpx.Response(200, stream=Breaking(lines, broken=False))


def broken(*lines: bytes) -> httpx.Response:
    return httpx.Response(200, stream=Breaking(lines, broken=True))


async def test_it_is_asked_with_the_arm_and_the_sampling_of_the_work() -> None:
    ids, asked, engine = await sampled(whole(line(7), line(8, END), line(finish="stop")))

    assert (ids, engine.trouble) == ([7, 8, END], None)
    ((url, body),) = asked
    assert url == "http://one/internal/generate"
    assert (body["prompt_ids"], body["adapter_version"], body["adapter_sha256"]) == ([5, 6], "v1.0.1", "a" * 64)
    assert body["sampling"] == {"n": 1, "temperature": 0.7, "top_p": 0.9, "top_k": 0, "max_tokens": 9}


async def test_it_is_asked_to_end_at_stop_strings_also_behind_what_it_sampled_before_it_was_killed() -> None:
    ids, asked, _ = await sampled(broken(line(7)), whole(line(8), line(finish="stop")), stop=("\n",))

    assert (ids, [body["sampling"]["stop"] for _, body in asked]) == ([7, 8], [["\n"]] * 2)


async def test_one_that_breaks_off_is_asked_to_go_on_behind_what_it_sampled() -> None:
    gone = httpx.ConnectError("connection refused")
    failed = whole(line(9), line(error="the engine's process was killed"))
    ids, asked, engine = await sampled(broken(line(7), line(8)), gone, failed, whole(line(END), line(finish="stop")))

    assert (ids, engine.trouble) == ([7, 8, 9, END], None)
    assert [body["prompt_ids"] for _, body in asked] == [[5, 6], [5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7, 8, 9]]
    assert [body["sampling"]["max_tokens"] for _, body in asked] == [9, 7, 7, 6]
    assert [url.partition("/internal")[0] for url, _ in asked] == ["http://one", "http://two"] * 2


@pytest.mark.parametrize(("lines", "most", "ids"), [([line(7, END)], 20, [7, END]), ([line(7, 8)], 2, [7, 8])])
async def test_an_answer_that_was_whole_is_not_gone_on_with(lines: list[bytes], most: int, ids: list[int]) -> None:
    found, asked, engine = await sampled(broken(*lines), most=most)

    assert (found, len(asked), engine.trouble) == (ids, 1, None)


@pytest.mark.parametrize(
    ("status", "type", "kind", "said"),
    [
        (401, "token", AgentRefused, "RATCHET_API_TOKEN"),
        (404, "about:blank", AgentRefused, "no agent of this version"),
        (409, "no-ids", AgentRefused, "can't be asked with token ids"),
        (422, "unfit", AgentRefused, "can't be asked with token ids"),
        (422, "prompt-refused", ContextTooLong, "can't be asked with token ids"),
    ],
)
async def test_what_no_waiting_mends_is_told(status: int, type: str, kind: type[Exception], said: str) -> None:
    problem = {"type": type, "detail": "it can't be asked with token ids"}
    with pytest.raises(kind, match=said):
        await sampled(httpx.Response(status, json=problem))


async def test_rollouts_of_a_group_and_of_one_task_after_the_other_go_to_replicas_in_turn() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return whole(line(END, finish="stop"))

    served = ServedModel(agent_id="small", engine="echo", tokenizer=None, revision=None, context=99)
    model = Model(served, template("qwen2_5"), ("http://one", "http://two"))
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        for sequence, number in ((3, 0), (3, 1), (4, 0), (5, 0)):
            of = work(f"t-{sequence}", sampling=SAMPLING, arm=ARM.model_copy(update={"sequence": sequence}))
            rollout = rollout_of(of, number, model, http)
            for said in ("a", "b"):  # further calls go where the first one went
                messages = [{"role": "user", "content": said}]
                assert [told.finish async for told in rollout.answer(ModelRequest(messages))][-1] is not None

    assert asked == [host for host in ("two", "one", "one", "two") for _ in range(2)]


async def test_an_agent_that_hangs_keeps_no_rollout_that_has_ended() -> None:
    waited: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            waited.append(request.extensions["timeout"]["read"])
            raise httpx.ReadTimeout("it hangs")
        return whole(line(7), line(8), line(finish="stop"))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), timeout=agent_client(None).timeout) as http:
        engine = AgentTokens(http, ("http://one",), arm=ARM, sampling=SAMPLING, context=100, ends={END})
        async for _ in (coming := engine.sample([5, 6], 20, call="left")):
            break
        await coming.aclose()
        await engine.call_off_left()

    assert len(waited) == 1 and waited[0] <= 10, "its answers may take minutes, but the deadline of the task is near"


async def test_a_call_has_its_name_each_time_it_is_asked_and_is_called_off_where_it_is_left_early() -> None:
    _, asked, _ = await sampled(broken(line(7)), whole(line(8), line(finish="stop")), call="a-call")
    assert [body["call"] for _, body in asked] == ["a-call"] * 2

    deleted: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            deleted.append(request.url.path)
            return httpx.Response(204)
        return whole(line(7), line(8), line(finish="stop"))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        engine = AgentTokens(http, ("http://one",), arm=ARM, sampling=SAMPLING, context=100, ends={END})
        for name in ("whole", "left"):
            async for _ in (coming := engine.sample([5, 6], 20, call=name)):
                if name == "left":
                    break
            await coming.aclose()
        assert deleted == []  # all of the rollout may be cut off, and begin again
        async for _ in engine.sample([5, 6, 7], 20, call="next"):
            assert deleted == ["/internal/generate/left"]
        await engine.call_off_left()

    assert deleted == ["/internal/generate/left"]
