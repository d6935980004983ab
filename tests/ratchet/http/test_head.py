"""HEAD is answered wherever GET is, by the same rules and without a body."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from ratchet.http.server.application import Heads, application
from tests.ratchet.http.real_services import service_of, settings_of


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/healthz", 200), ("/nowhere", 404), ("/v1/chat/completions", 405)]
)
async def test_it_has_the_status_and_the_headers_of_get_and_no_body(tmp_path: Path, path: str, status: int) -> None:
    settings = settings_of("orchestrator", tmp_path)
    service = service_of(settings)
    app = application("orchestrator", service.routers(), settings, service.trouble)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        head, got = await client.head(path), await client.get(path)

    assert (head.status_code, head.content, got.status_code) == (status, b"", status)
    assert {**head.headers, "date": ""} == {**got.headers, "date": ""}


async def test_a_stream_is_left_as_soon_as_it_begins() -> None:
    left = asyncio.Event()

    async def stream(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        assert scope["method"] == "GET"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    async with httpx.AsyncClient(transport=httpx.ASGITransport(Heads(stream)), base_url="http://localhost") as client:
        assert (await client.head("/v1/events")).status_code == 200

    assert left.is_set()
