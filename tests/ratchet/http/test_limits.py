"""Limits of requests, bytes, nesting and time, on a small application with the real middlewares."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import StreamingResponse
from hypothesis import given
from hypothesis import strategies as st

from ratchet.http.access.roles import Caller, Role
from ratchet.http.operation import OPERATOR, SUBMITTER, VIEWER, Effect, operation
from ratchet.http.problem import Problem
from ratchet.http.server.application import application
from ratchet.http.server.limits import DEEPEST, Body, RateLimit, depth_of
from tests.ratchet.http.real_services import settings_of
from tests.waiting import until

KIB = 1024


class Slow:
    """Routes that wait until told, and count who is inside."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.inside = 0
        self.router = APIRouter()
        self.router.add_api_route("/v1/generate", self.generate, methods=["POST"])
        self.router.add_api_route("/v1/adapters", self.adapters, methods=["GET"])

    @operation(SUBMITTER, OPERATOR)
    async def generate(self, request: Request) -> dict[str, int]:
        self.inside += 1
        await self.go.wait()
        return {"bytes": len(await request.body())}

    @operation(VIEWER, OPERATOR)
    async def adapters(self) -> StreamingResponse:
        async def stream() -> AsyncIterator[str]:
            self.inside += 1
            yield "begun"
            await self.go.wait()

        return StreamingResponse(stream())


@pytest.fixture
def slow() -> Slow:
    return Slow()


def app_of(slow: Slow, folder: Path, **given: Any) -> FastAPI:
    return application("agent", [slow.router], settings_of("agent", folder, **given), lambda: None)


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def until_inside(slow: Slow, count: int) -> None:
    await until(lambda: slow.inside >= count)


async def test_more_at_once_than_allowed_are_told_to_come_again(slow: Slow, tmp_path: Path) -> None:
    async with client_of(app_of(slow, tmp_path, api_requests_at_once=3)) as client:
        running = [asyncio.create_task(client.post("/v1/generate")) for _ in range(3)]
        await until_inside(slow, 3)

        refused = await client.post("/v1/generate")
        health = await client.get("/healthz")
        slow.go.set()
        answered = await asyncio.gather(*running)
        after = await client.post("/v1/generate")

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert [answer.status_code for answer in answered] == [200] * 3
    assert (health.status_code, after.status_code) == (200, 200)


async def test_work_that_waits_leaves_room_to_look_and_to_change(tmp_path: Path) -> None:
    slow, router = Slow(), APIRouter()

    @router.post("/v1/tasks")
    @operation(SUBMITTER, OPERATOR, effect=Effect.WORKS)
    async def submit(request: Request) -> dict[str, int]:
        return await slow.generate(request)

    @router.post("/v1/adapters/{agent_id}/rollback")
    @operation(OPERATOR, effect=Effect.REPLACES)
    async def roll_back(agent_id: str) -> dict[str, str]:
        return {}

    settings = settings_of("orchestrator", tmp_path, api_requests_at_once=4)

    async with client_of(application("orchestrator", [router], settings, lambda: None)) as client:
        waiting = [asyncio.create_task(client.post("/v1/tasks")) for _ in range(3)]
        await until_inside(slow, 3)
        refused = await client.post("/v1/tasks")
        change = await client.post("/v1/adapters/small/rollback")
        slow.go.set()
        answered = await asyncio.gather(*waiting)

    assert (refused.status_code, change.status_code) == (429, 200)
    assert [answer.status_code for answer in answered] == [200] * 3


async def test_a_stream_that_runs_is_not_a_request_at_once(slow: Slow, tmp_path: Path) -> None:
    app = app_of(slow, tmp_path, api_requests_at_once=1)
    streaming = asyncio.create_task(client_of(app).get("/v1/adapters"))
    await until_inside(slow, 1)

    async with client_of(app) as client:
        posted = asyncio.create_task(client.post("/v1/generate"))
        await until_inside(slow, 2)
        slow.go.set()

    assert [(await one).status_code for one in (streaming, posted)] == [200, 200]


async def nothing(*_: Any) -> None:
    return None


async def test_a_caller_s_pace_is_bounded_and_others_are_not_held_up() -> None:
    now = 0.0
    pace = RateLimit(nothing, 10.0, lambda: now)

    async def taken(name: str, times: int) -> int:
        good = 0
        for _ in range(times):
            scope = {"type": "http", "state": {"caller": Caller(name, Role.VIEWER)}}
            try:
                await pace(scope, nothing, nothing)  # type: ignore[arg-type]
            except Problem as problem:
                assert (problem.status, problem.headers["Retry-After"]) == (429, "1")
            else:
                good += 1
        return good

    assert await taken("greedy", 100) == 20
    assert await taken("modest", 5) == 5
    now = 1.0
    assert await taken("greedy", 100) == 10
    now = 100.0
    assert await taken("greedy", 100) == 20


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_may_have_so_many_bytes_and_not_one_more(slow: Slow, tmp_path: Path, chunked: bool) -> None:
    async def parts(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 256):
            yield b" " * 256
        yield b" " * (size % 256)

    slow.go.set()
    async with client_of(app_of(slow, tmp_path, max_message_bytes=KIB)) as client:
        answers = [
            await client.post("/v1/generate", content=parts(size) if chunked else b" " * size)
            for size in (KIB, KIB + 1, 100 * KIB)
        ]

    assert [answer.status_code for answer in answers] == [200, 413, 413]
    assert answers[0].json() == {"bytes": KIB}
    assert "RATCHET_MAX_MESSAGE_BYTES" in answers[1].json()["detail"]


async def test_a_packed_body_is_refused_in_a_sentence(slow: Slow, tmp_path: Path) -> None:
    async with client_of(app_of(slow, tmp_path)) as client:
        reply = await client.post("/v1/generate", content=b"\x1f\x8b", headers={"content-encoding": "gzip"})

    assert (reply.status_code, reply.json()["type"]) == (415, "content-encoding")
    assert "send it uncompressed" in reply.json()["detail"]


async def test_a_body_that_never_ends_is_given_up() -> None:
    body = Body(nothing, KIB, within_s=0.05)

    async def trickle() -> dict[str, Any]:
        await asyncio.sleep(0.02)  # real time: the body's pieces come one after the other
        return {"type": "http.request", "body": b" ", "more_body": True}

    with pytest.raises(Problem) as slow_body:
        await body({"type": "http", "method": "POST", "headers": []}, trickle, nothing)
    assert slow_body.value.status == 408


async def test_a_client_that_leaves_within_its_body_reaches_no_route() -> None:
    reached = []

    async def route(*_: Any) -> None:
        reached.append(True)

    async def leave() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(Problem):
        await Body(route, KIB)({"type": "http", "method": "POST", "headers": []}, leave, nothing)
    assert reached == []


@pytest.mark.parametrize(("depth", "status"), [(DEEPEST, 200), (DEEPEST + 1, 400), (100_000, 400)])
async def test_brackets_go_only_so_deep(slow: Slow, tmp_path: Path, depth: int, status: int) -> None:
    slow.go.set()
    async with client_of(app_of(slow, tmp_path)) as client:
        answer = await client.post("/v1/generate", content=b"[" * depth + b"]" * depth)

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (r'{"a": "\ud83d\ude00"}', 200),
        (r'{"a": "\ud83d"}', 400),
        (r'{"\uDE00": 1}', 400),
        (r'["\ude00\ud83d"]', 400),
        (r'["\\ud83d"]', 200),
        (r"\ud83d", 200),
    ],
)
async def test_a_character_is_whole(slow: Slow, tmp_path: Path, text: str, status: int) -> None:
    slow.go.set()
    async with client_of(app_of(slow, tmp_path)) as client:
        answer = await client.post("/v1/generate", content=text)

    assert answer.status_code == status


trees = st.recursive(
    st.none() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=60,
)


def nesting(tree: Any) -> int:
    if isinstance(tree, dict):
        return 1 + max(map(nesting, tree.values()), default=0)
    return 1 + max(map(nesting, tree), default=0) if isinstance(tree, list) else 0


@given(trees, st.integers(0, 200))
def test_the_depth_of_json_is_never_told_too_small(tree: Any, around: int) -> None:
    for _ in range(around):
        tree = [tree]
    body = json.dumps({"a": ["[" * 70, tree]}).encode()

    deepest = nesting(tree) + 2

    assert (depth_of(body) > DEEPEST) == (deepest > DEEPEST)


@pytest.mark.parametrize("within", [b'\\"', b'"', b"\\", b'a"', b'\\\\"'])
def test_no_body_takes_long_to_measure(within: bytes) -> None:
    body = b"[" * DEEPEST + b'"[' + within * (500_000 // len(within))
    began = time.process_time()

    depth_of(body)

    assert time.process_time() - began < 2


async def test_a_deadline_bounds_the_wait(slow: Slow, tmp_path: Path) -> None:
    async with client_of(app_of(slow, tmp_path)) as client:
        late = await client.post("/v1/generate", headers={"X-Request-Timeout": "0.05"})
        slow.go.set()
        in_time = await client.post("/v1/generate", headers={"X-Request-Timeout": "30"})

    assert (late.status_code, late.json()["type"]) == (504, "deadline")
    assert in_time.status_code == 200


@pytest.mark.parametrize("seconds", ["", "soon", "0", "-1", "nan", "inf", "1e9"])
async def test_a_deadline_is_a_number_of_seconds(slow: Slow, tmp_path: Path, seconds: str) -> None:
    async with client_of(app_of(slow, tmp_path)) as client:
        answer = await client.post("/v1/generate", headers={"X-Request-Timeout": seconds})

    assert answer.status_code == 400
