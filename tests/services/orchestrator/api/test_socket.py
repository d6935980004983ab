"""Events over a WebSocket: who is let in, what comes, and when it ends."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import issue
from ratchet.http.server.application import application
from ratchet.service.settings import FleetSettings
from services.orchestrator.api.events import events_router, frames_of, socket_router
from services.orchestrator.observation.event_hub import EventHub
from tests.ratchet.http.access.tokens_for_tests import OURS, Mint
from tests.serving import serving
from tests.waiting import until

REVOKED_WITHIN_S = 2.0


@asynccontextmanager
async def served(folder: Path, hub: EventHub, mint: Mint | None = None) -> AsyncIterator[str]:
    """The address of the socket, of a service that asks for the tokens of `mint`, if any."""
    given: dict[str, Any] = {"api_public_keys": mint.keys.jwks} if mint else {}
    settings = FleetSettings(api_audit_dir=folder / "audit", **given)
    app = application("orchestrator", [events_router(hub), socket_router(hub)], settings, lambda: None)
    async with serving(app, ws="websockets-sansio") as url:
        yield f"{url.replace('http', 'ws')}/v1/ws"
        hub.close()


async def listening(hub: EventHub, count: int = 1) -> None:
    await until(lambda: hub.clients == count, f"{count} clients")


async def code_of(socket: ClientConnection) -> int:
    """The code that it is closed with."""
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            await socket.recv()
    assert ended.value.rcvd is not None
    return ended.value.rcvd.code


async def test_events_come_as_json_and_only_those_that_were_asked_for(tmp_path: Path) -> None:
    hub = EventHub("now")
    async with served(tmp_path, hub) as url, connect(url, subprotocols=["ratchet.v1"]) as socket:
        assert socket.subprotocol == "ratchet.v1"
        await socket.send(json.dumps({"kinds": "decision"}))
        await listening(hub)
        hub.publish("queues", {"n": 1})
        hub.publish("decision", {"n": "a\n\nb"})
        assert json.loads(await socket.recv()) == {"id": "now-2", "event": "decision", "data": {"n": "a\n\nb"}}


By = Callable[[str, str], Awaitable[ClientConnection]]


async def by_protocol(url: str, token: str) -> ClientConnection:
    return await connect(url, subprotocols=["ratchet.v1", f"bearer.{token}"])  # type: ignore[list-item]


async def by_first_frame(url: str, token: str) -> ClientConnection:
    socket = await connect(url)
    await socket.send(json.dumps({"token": token}))
    return socket


@pytest.mark.parametrize("by", [by_protocol, by_first_frame])
async def test_a_token_lets_in_until_it_is_revoked(tmp_path: Path, by: By) -> None:
    mint, hub = Mint(tmp_path / "keys"), EventHub("now")
    token, claims = issue(mint.keys.signing_key(), "vic", Role.VIEWER, 3600, **OURS)
    async with served(tmp_path, hub, mint) as url:
        socket = await by(url, token)
        await listening(hub)
        hub.publish("queues", {})
        assert json.loads(await socket.recv())["event"] == "queues"

        began = time.monotonic()
        mint.keys.revoke(claims.jti, 2**40)
        assert await code_of(socket) == 4401
        assert time.monotonic() - began < REVOKED_WITHIN_S
        await listening(hub, 0)


async def test_no_token_none_that_counts_and_a_role_without_events_are_refused(tmp_path: Path) -> None:
    mint, hub = Mint(tmp_path / "keys"), EventHub("now")
    async with served(tmp_path, hub, mint) as url:
        for token in ("", "x.y.z", mint.good(Role.RUNNER)):
            assert await code_of(await by_first_frame(url, token)) == 4401
        assert await code_of(await connect(f"{url}?token={mint.good(Role.VIEWER)}")) == 4400
        assert hub.clients == 0


async def test_a_first_frame_that_is_none_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, EventHub("now")) as url:
        for frame in ("nonsense", "[]", '{"kinds": "none-such"}', '{"more": 1}'):
            async with connect(url) as socket:
                await socket.send(frame)
                assert await code_of(socket) == 4400


async def test_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, EventHub("now")) as url:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, origin="http://evil.example")  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403


async def test_a_submitter_gets_events_of_its_own_tasks(tmp_path: Path) -> None:
    mint, hub = Mint(tmp_path / "keys"), EventHub("now")
    async with served(tmp_path, hub, mint) as url:
        socket = await by_protocol(url, mint.good(Role.SUBMITTER, "ann"))
        await listening(hub)
        hub.publish("queues", {})
        hub.publish_task("task.settled", {"task_id": "b/1"}, "bob")
        hub.publish_task("task.settled", {"task_id": "a/1"}, "ann")
        assert json.loads(await socket.recv())["data"] == {"task_id": "a/1"}


async def test_who_reads_too_slowly_is_told_how_much_it_missed(tmp_path: Path) -> None:
    hub = EventHub("now", size=8)
    async with served(tmp_path, hub) as url, connect(url) as socket:
        await socket.send("{}")
        await listening(hub)
        for n in range(100):
            hub.publish("queues", {"n": n})
        told = json.loads(await socket.recv())
        assert (told["event"], told["data"]) == ("gap", {"missed": 92})
        assert json.loads(await socket.recv())["data"] == {"n": 92}


async def test_it_goes_on_after_the_event_that_it_names(tmp_path: Path) -> None:
    hub = EventHub("now")
    for n in range(3):
        hub.publish("queues", {"n": n})
    async with served(tmp_path, hub) as url, connect(url) as socket:
        await socket.send(json.dumps({"after": "now-2"}))
        assert json.loads(await socket.recv())["data"] == {"n": 2}


def test_heartbeats_and_the_head_of_a_stream_are_no_events() -> None:
    assert frames_of(b": still here\n\n") == frames_of(b"retry: 2000\nid: now-1\n\n") == []
