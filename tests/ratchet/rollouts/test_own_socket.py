"""A recorder at a socket of its own, asked by whoever may be hostile."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvloop

from ratchet.conversation.template import Codec
from ratchet.dialects.dialect import ModelRequest
from ratchet.rollouts.application import SMALL_BODY, Recorder
from ratchet.rollouts.own_socket import MOST_CONNECTIONS, serving
from ratchet.rollouts.rollout import Budget, BudgetSpent, RecordedRollout
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
from tests.waiting import until
from workbench.sandbox.job import Listen

ASKED = {"model": "any", "messages": [{"role": "user", "content": "What is in it?"}]}

BPE = codec()


def nested(levels: int) -> dict[str, Any]:
    return {"properties": nested(levels - 1)} if levels else {}


class Asking:
    def __init__(self, port: int, key: str, budget: Budget) -> None:
        self.port, self.key, self.budget = port, key, budget

    async def status(self, key: str | None = None, **more: object) -> int:
        return (await self.reply(key, **more)).status_code

    async def reply(self, key: str | None = None, **more: object) -> httpx.Response:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as http:
            headers = {"Authorization": f"Bearer {self.key if key is None else key}"}
            return await http.post("/v1/chat/completions", json=ASKED | more, headers=headers)


def listened(listen: Listen) -> int:
    """The port of a socket that it was given."""
    server = socket.create_server(("127.0.0.1", 0))
    listen(server)
    return int(server.getsockname()[1])


@asynccontextmanager
async def served(
    budget: Budget | None = None, most_requests: int = 100, most_body: int = 10_000, codec: Codec = BPE
) -> AsyncIterator[Asking]:
    engine = ScriptedEngine(lambda prompt: [*BPE.encode("A coin."), SPECIAL.index("<|im_end|>")])
    budget = budget or Budget()
    recorder = Recorder(most_body)
    key = recorder.begin(RecordedRollout(template("qwen2_5", codec), engine, model="small", budget=budget))
    async with serving(recorder, budget, most_requests) as listen:
        yield (asking := Asking(listened(listen), key, budget))
        recorder.end(key)
        assert await asking.status() == 401


async def test_a_key_is_worth_something_at_its_own_socket_while_its_rollout_runs() -> None:
    async with served() as one, served() as other:
        assert (await one.status(), await other.status()) == (200, 200)
        assert (await one.status(other.key), await other.status(one.key), await one.status("x")) == (401, 401, 401)


async def test_a_socket_is_closed_when_it_is_over_also_one_that_comes_late() -> None:
    async with serving(Recorder(), Budget(), 10) as listen:
        port = listened(listen)
        assert await Asking(port, "x", Budget()).status() == 401
    late = listened(listen)
    await asyncio.sleep(0)
    for one in (port, late):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", one))


async def test_calls_tokens_and_requests_end_the_rollout_that_takes_too_many() -> None:
    async with served(Budget(calls=2)) as asking:
        assert [await asking.status() for _ in range(3)] == [200, 200, 503]
        assert asking.budget.says == "it called the model more than 2 times"
        assert asking.budget.spent.is_set()
    async with served(Budget(tokens=3)) as asking:
        assert [await asking.status() for _ in range(2)] == [200, 503]
        assert asking.budget.says == "the model sampled 3 tokens for it, as many as it may have"
    async with served(most_requests=3) as asking:
        assert [await asking.status("wrong") for _ in range(4)] == [401] * 4
        assert asking.budget.says == "it sent more requests than a rollout may"


async def test_what_is_refused_counts_as_a_call() -> None:
    async with served(Budget(calls=2)) as asking:
        assert [await asking.status(n=9) for _ in range(3)] == [400, 400, 503]


class SlowCodec:
    """Does not come to the end of a long text until it may."""

    def __init__(self) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        if len(text) > SMALL_BODY:
            self.reached.set()
            self.may_go_on.wait()
        return codec().encode(text, plain=plain)

    def decode(self, ids: Sequence[int]) -> str:
        return codec().decode(ids)


async def test_while_a_long_text_is_tokenized_neighbours_are_answered() -> None:
    slow = SlowCodec()
    async with served(codec=slow) as bad, served(codec=slow) as neighbour:
        long = asyncio.create_task(bad.status(messages=[{"role": "user", "content": "x" * (SMALL_BODY + 1)}]))
        await asyncio.to_thread(slow.reached.wait)

        assert await neighbour.status() == 200
        slow.may_go_on.set()
        assert await long == 200


async def test_a_long_call_whose_client_goes_is_none() -> None:
    slow = SlowCodec()
    engine = ScriptedEngine(lambda prompt: [])
    rollout = RecordedRollout(template("qwen2_5", slow), engine, model="small")
    asked = ModelRequest([{"role": "user", "content": "x" * (SMALL_BODY + 1)}], is_large=True)
    call = asyncio.create_task(anext(rollout.answer(asked)))
    await asyncio.to_thread(slow.reached.wait)
    call.cancel()
    slow.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (rollout.conversation.calls, engine.seen) == ([], [])


async def test_a_long_call_beside_which_others_used_up_the_tokens_asks_the_engine_nothing() -> None:
    slow, budget = SlowCodec(), Budget(tokens=1)
    engine = ScriptedEngine(lambda prompt: [0, 1])
    rollout = RecordedRollout(template("qwen2_5", slow), engine, model="small", budget=budget)
    asked = ModelRequest([{"role": "user", "content": "x" * (SMALL_BODY + 1)}], is_large=True)
    call = asyncio.create_task(anext(rollout.answer(asked)))
    await asyncio.to_thread(slow.reached.wait)
    for _ in range(2):  # two answers side by side: the engine would be asked for less than nothing, and called broken
        budget.take_token()
    slow.may_go_on.set()
    with pytest.raises(BudgetSpent):
        await call
    assert (rollout.conversation.calls, engine.seen) == ([], [])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"messages": [{"role": "user", "content": "x" * 200_000}]}, "200,000 characters"),
        ({"filling": [1] * 20_000}, "more than 16,384 values"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": nested(700)}}]}, "nested too deep"),
    ],
)
async def test_what_would_take_long_is_refused_before_it_does(given: dict[str, Any], says: str) -> None:
    async with served(most_body=512 * 1024) as asking:
        reply = await asking.reply(**given)
        assert reply.status_code == 400
        assert says in reply.json()["error"]["message"]
        assert await asking.status() == 200


async def test_a_request_that_is_too_large_is_refused_as_one_that_fits_no_context() -> None:
    async with served(most_body=1000) as asking:
        assert await asking.status(filling="x" * 2000) == 400
        assert await asking.status() == 200


async def test_connections_that_say_nothing_are_bounded_and_leave_room_for_none_of_the_machines() -> None:
    async with served() as asking:
        held = [socket.socket() for _ in range(MOST_CONNECTIONS + 20)]
        for one in held:
            await asyncio.to_thread(one.connect, ("127.0.0.1", asking.port))
            one.setblocking(False)

        def refused() -> int:
            count = 0
            for one in held:
                try:
                    count += one.recv(1) == b""
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    count += 1
            return count

        await until(lambda: refused() >= 20, "the last ones are closed")
        for one in held:
            one.close()


async def test_what_is_under_way_when_it_ends_ends_with_it() -> None:
    engine = ScriptedEngine(lambda prompt: codec().encode("A coin in a box"))
    engine.gate.clear()
    recorder, budget = Recorder(), Budget()
    rollout = RecordedRollout(template("qwen2_5"), engine, model="small", budget=budget)
    key = recorder.begin(rollout)
    async with serving(recorder, budget, 10) as listen:
        asking = asyncio.create_task(Asking(listened(listen), key, budget).status())
        await engine.asked.acquire()
    with pytest.raises(httpx.HTTPError):
        await asking
    await asyncio.wait_for(rollout.wait_idle(), 30)


def test_its_sockets_are_closed_on_the_loop_that_services_run_on() -> None:
    def is_closed(port: int) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    async def served_for_a_while() -> None:
        async with served() as one:
            assert await one.status() == 200
        await until(lambda: is_closed(one.port), "the socket is closed", 30)

    uvloop.run(served_for_a_while())


async def test_a_body_in_chunks_of_one_byte_is_refused_and_others_are_answered() -> None:
    """Each chunk takes the loop as long as a large one, and there may be millions."""
    async with served(most_body=100_000) as at:
        body = json.dumps(ASKED | {"user": "x" * 20_000}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {at.key}"
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(f"{head}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")

        assert b" 400 " in await reader.readline()
        assert await at.status() == 200
        writer.close()
