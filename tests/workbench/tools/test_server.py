"""The toolbox over MCP, spoken to by the official client library: in process, over HTTP with a token, over stdio."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
from mcp import Client, StdioServerParameters

from ratchet.tools.server import build_server, http_app
from tests.serving import serving
from tests.workbench.tools.world import World, lines_of

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def test_tools_are_listed_with_what_they_do_and_called(world: World) -> None:
    world.write("a.txt", "hello")
    async with Client(build_server(world.toolbox)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("file_read", {"path": "a.txt"})
        wrong = await client.call_tool("file_read", {"path": "../x", "more": 1})
        up = await client.call_tool("file_read", {"path": "../x"})

    assert len(tools) == 55
    assert tools["file_read"].annotations.read_only_hint and tools["file_remove"].annotations.destructive_hint  # type: ignore[union-attr]
    assert tools["file_read"].input_schema["required"] == ["path"]
    assert answer.structured_content is not None and answer.structured_content["text"] == "hello"
    assert wrong.is_error and "more" in wrong.content[0].text  # type: ignore[union-attr]
    assert up.is_error and "leads up" in up.content[0].text  # type: ignore[union-attr]


async def test_what_is_not_offered_is_refused_and_audited(tmp_path: Path) -> None:
    world = World(tmp_path, operations={"http_post": "deny"})
    async with Client(build_server(world.toolbox)) as client:
        denied = await client.call_tool("http_post", {"url": "https://example.com", "body": 1})
        unknown = await client.call_tool("file_reed", {"path": "a.txt"})

    assert denied.is_error and "denied by the policy" in denied.content[0].text  # type: ignore[union-attr]
    assert unknown.is_error and "no tool 'file_reed'" in unknown.content[0].text  # type: ignore[union-attr]
    await world.toolbox.close()
    assert [(one["event"], one["tool"]) for one in lines_of(world.audit)] == [
        ("refused", "http_post"),
        ("refused", "file_reed"),
    ]


async def test_over_http_nobody_is_answered_without_the_token(world: World) -> None:
    world.write("a.txt", "hello")
    app = http_app(world.toolbox, "the-token")
    async with serving(app, lifespan="on") as url, httpx.AsyncClient(trust_env=False) as client:
        accepts = {"Accept": "application/json, text/event-stream"}
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "the-token"}):
            refused = await client.post(f"{url}/mcp", json=INITIALIZE, headers=accepts | given)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        good = {"Authorization": "Bearer the-token"}
        answered = await client.post(f"{url}/mcp", json=INITIALIZE, headers=accepts | good)
        assert answered.status_code == 200 and "ratchet-tools" in answered.text
        elsewhere = await client.post(f"{url}/mcp", json=INITIALIZE, headers=accepts | good | {"Host": "evil.test"})
        assert elsewhere.status_code in (403, 421), "a name that leads here is not the one that was served"


async def test_over_stdio_as_a_client_starts_it(world: World) -> None:
    world.write("a.txt", "hello")
    arguments = ["-m", "services.cli", "tools", "serve", "--root", str(world.root), "--audit", str(world.audit)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ), cwd=Path.cwd())
    async with Client(server) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("file_read", {"path": "a.txt"})
        asks = await client.call_tool("file_remove", {"path": "a.txt"})

    assert "http_post" not in names
    assert answer.structured_content is not None and answer.structured_content["text"] == "hello"
    assert asks.is_error and "consent" in asks.content[0].text  # type: ignore[union-attr]
