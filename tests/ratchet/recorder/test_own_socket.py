"""A recorder at a Unix socket of its own, asked by whoever may be hostile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ratchet.recorder.application import Recorder
from ratchet.recorder.engine import ScriptedEngine
from ratchet.recorder.own_socket import MOST_CONNECTIONS, serving_at
from ratchet.recorder.rollout import Budget, RecordedRollout
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.waiting import until

ASKED = {"model": "any", "messages": [{"role": "user", "content": "What is in it?"}]}


class Asking:
    def __init__(self, path: Path, key: str, budget: Budget) -> None:
        self.path, self.key, self.budget = path, key, budget

    async def status(self, key: str | None = None, **more: object) -> int:
        transport = httpx.AsyncHTTPTransport(uds=str(self.path))
        async with httpx.AsyncClient(transport=transport, base_url="http://recorder") as http:
            headers = {"Authorization": f"Bearer {self.key if key is None else key}"}
            reply = await http.post("/v1/chat/completions", json=ASKED | more, headers=headers)
            return reply.status_code


@asynccontextmanager
async def served(
    path: Path, budget: Budget | None = None, most_requests: int = 100, most_body: int = 10_000
) -> AsyncIterator[Asking]:
    engine = ScriptedEngine(lambda prompt: [*codec().encode("A coin."), SPECIAL.index("<|im_end|>")])
    budget = budget or Budget()
    recorder = Recorder(most_body)
    key = recorder.begin(RecordedRollout(template("qwen2_5"), engine, model="small", budget=budget))
    async with serving_at(path, recorder, budget, most_requests):
        yield Asking(path, key, budget)
        recorder.end(key)
        assert await Asking(path, key, budget).status() == 401


async def test_a_key_is_worth_something_at_its_own_socket_while_its_rollout_runs(tmp_path: Path) -> None:
    async with served(tmp_path / "one") as one, served(tmp_path / "other") as other:
        assert (await one.status(), await other.status()) == (200, 200)
        assert (await one.status(other.key), await other.status(one.key), await one.status("x")) == (401, 401, 401)

    assert list(tmp_path.iterdir()) == []


async def test_a_path_that_is_longer_than_a_socket_may_have_is_served(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    async with serving_at(folder / "socket", Recorder(), Budget(), 10):
        assert (folder / "socket").is_socket()
    assert list(folder.iterdir()) == []


async def test_calls_tokens_and_requests_end_the_rollout_that_takes_too_many(tmp_path: Path) -> None:
    async with served(tmp_path / "calls", Budget(calls=2)) as asking:
        assert [await asking.status() for _ in range(3)] == [200, 200, 503]
        assert asking.budget.says == "it called the model more than 2 times"
        assert asking.budget.spent.is_set()
    async with served(tmp_path / "tokens", Budget(tokens=3)) as asking:
        assert [await asking.status() for _ in range(2)] == [200, 503]
        assert asking.budget.says == "the model sampled 3 tokens for it, as many as it may have"
    async with served(tmp_path / "requests", most_requests=3) as asking:
        assert [await asking.status("wrong") for _ in range(4)] == [401] * 4
        assert asking.budget.says == "it sent more requests than a rollout may"


async def test_a_request_that_is_too_large_is_refused_as_one_that_fits_no_context(tmp_path: Path) -> None:
    async with served(tmp_path / "one", most_body=1000) as asking:
        assert await asking.status(filling="x" * 2000) == 400
        assert await asking.status() == 200


async def test_connections_that_say_nothing_are_bounded_and_leave_room_for_none_of_the_machines(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "one"):
        held = [socket.socket(socket.AF_UNIX) for _ in range(MOST_CONNECTIONS + 20)]
        for one in held:
            await asyncio.to_thread(one.connect, str(tmp_path / "one"))
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


async def test_what_is_under_way_when_it_ends_ends_with_it(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda prompt: codec().encode("A coin in a box"))
    engine.gate.clear()
    recorder, budget = Recorder(), Budget()
    rollout = RecordedRollout(template("qwen2_5"), engine, model="small", budget=budget)
    key = recorder.begin(rollout)
    async with serving_at(tmp_path / "one", recorder, budget, 10):
        asking = asyncio.create_task(Asking(tmp_path / "one", key, budget).status())
        await engine.asked.acquire()
    with pytest.raises(httpx.HTTPError):
        await asking
    await asyncio.wait_for(rollout.wait_idle(), 10)
