"""The 6 operations over HTTP, and the guard: 44 bad addresses and none goes through, each is known to get there."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workbench.tools.world import Case, World, bad, good, hold, hostile
from workbench.tools.operation import ToolError
from workbench.tools.ssrf import GuardedNetwork, is_public

_BAD = """
    127.0.0.1 127.1 2130706433 0x7f000001 0177.0.0.1 0 0.0.0.0 localhost 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1
    169.254.169.254 100.64.0.1 198.18.0.1 192.0.0.192 192.0.2.1 203.0.113.9 198.51.100.7 192.88.99.1 224.0.0.1 240.0.0.1
    255.255.255.255 [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe]
    [64:ff9b:1::1] [2002:7f00:1::] [2002:a9fe:a9fe::1] [fe80::1] [fc00::1] [fd00:ec2::254] [ff02::1] [2001:db8::1]
    [2001::1] [fec0::1] [100::1]
"""
BAD = [*_BAD.split(), "１２７.0.0.1", "ⓛocalhost", "127。0。0。1"]
LOOPBACK = ("127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost", "[::ffff:127.0.0.1]")
"""Those among them by which a server on 127.0.0.1 is reached."""


class Server:
    """Answers by path; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections = 0
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            method, path, _ = lines[0].split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append((method, path, headers, body))
            writer.write(self._answer(method, path))
            if path == "/endless":
                while not writer.is_closing():
                    writer.write(b"x" * 65_536)
                    await writer.drain()
            if path == "/hangs":
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, method: str, path: str) -> bytes:
        if path.startswith("/to/"):
            return f"HTTP/1.1 302 Found\r\nLocation: {path[4:]}\r\nContent-Length: 0\r\n\r\n".encode()
        if path == "/loop":
            return b"HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n"
        if path == "/hangs":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
        if path == "/endless":
            return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        if path == "/nonsense":
            return b"SSH-2.0-OpenSSH\r\n\r\n"
        if path == "/none":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"
        content = b"\xff\x00\xfe" if path == "/bytes" else b'{"said": "' + method.encode() + b'"}'
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        return head + (b"" if method == "HEAD" else content)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as one:
        yield one


def allowing(folder: Path, server: Server, **more: Any) -> World:
    """Loopback is allowed, as only a test does, and names lead there."""

    async def resolve(host: str, port: int) -> list[str]:
        known = {"internal.test": ["10.0.0.7"], "two.test": ["127.0.0.1", "10.0.0.7"], "10.0.0.7": [host]}
        return known.get(host, ["127.0.0.1"])

    http = {"networks": ["127.0.0.0/8"], "ports": [server.port], "seconds": 2.0, **more}
    return World(folder, resolve=resolve, http=http)


def is_answered_to(method: str) -> Any:
    return lambda it: it["status"] == 200 and it["text"] == f'{{"said": "{method}"}}'


URL = "http://a.test:PORT"
CASES = [
    good("http_get", {"url": f"{URL}/x"}, is_answered_to("GET")),
    good("http_get", {"url": f"{URL}/to//x"}, is_answered_to("GET"), name="redirect"),
    good("http_get", {"url": f"{URL}/none"}, {"status": 404, "text": "no"}, name="not-found"),
    good("http_get", {"url": f"{URL}/endless"}, {"whole": False}, name="cut"),
    bad("http_get", {"url": "ftp://a.test/x"}, "arguments: no http"),
    bad("http_get", {"url": "http://a.test:81/"}, "policy: port 81", name="port"),
    hostile("http_get", {"url": "http://internal.test:PORT/"}, "policy: not public"),
    hostile("http_get", {"url": "http://two.test:PORT/"}, "policy: not public", name="mixed"),
    hostile("http_get", {"url": f"{URL}/to/http://internal.test:PORT/"}, "policy: not public", name="redirect"),
    hostile("http_get", {"url": f"{URL}/to/file:///etc/passwd"}, "arguments: no http", name="redirect-file"),
    hostile("http_get", {"url": f"{URL}/to/http://10.0.0.7:PORT/"}, "policy: not public", name="redirect-address"),
    hostile("http_get", {"url": f"{URL}/loop"}, "limit: redirects more than", name="loop"),
    hostile("http_get", {"url": f"{URL}/hangs"}, "limit: did not answer", name="hangs"),
    hostile("http_get", {"url": f"{URL}/nonsense"}, "failed: ", name="nonsense"),
    hostile("http_get", {"url": "http://ann:secret@a.test:PORT/"}, "arguments: no name and password", name="userinfo"),
    hostile("http_get", {"url": f"{URL}/x", "headers": {"Host": "b.test"}}, "arguments: not yours", name="host"),
    hostile("http_get", {"url": f"{URL}/x", "headers": {"X": "a\r\nHost: b"}}, "arguments: headers", name="split"),
    good("http_head", {"url": f"{URL}/x"}, {"status": 200}),
    bad("http_head", {"url": "no url at all"}, "arguments: no http"),
    hostile("http_head", {"url": "http://internal.test:PORT/"}, "policy: not public"),
    good("http_post", {"url": f"{URL}/x", "body": {"a": [1]}}, is_answered_to("POST")),
    good("http_post", {"url": f"{URL}/to//x", "body": 1}, {"status": 302}, name="redirect"),
    bad("http_post", {"url": f"{URL}/x", "body": "x" * 2_000_000}, "limit: the body"),
    hostile("http_post", {"url": "http://internal.test:PORT/", "body": 1}, "policy: not public"),
    good("http_put", {"url": f"{URL}/x", "body": None}, is_answered_to("PUT")),
    bad("http_put", {"url": f"{URL}/x"}, "arguments: body"),
    hostile("http_put", {"url": "http://internal.test:PORT/", "body": 1}, "policy: not public"),
    good("http_delete", {"url": f"{URL}/x"}, is_answered_to("DELETE")),
    bad("http_delete", {"url": "http:///x/yz"}, "arguments: no http"),
    hostile("http_delete", {"url": "http://internal.test:PORT/"}, "policy: not public"),
    good("http_download", {"url": f"{URL}/bytes", "path": "d/x"}, {"bytes": 3}),
    bad("http_download", {"url": f"{URL}/none", "path": "x"}, "failed: answered 404"),
    hostile("http_download", {"url": "http://internal.test:PORT/", "path": "x"}, "policy: not public"),
    hostile("http_download", {"url": f"{URL}/x", "path": "../outside/x"}, "arguments: leads up", name="path"),
    hostile("http_download", {"url": f"{URL}/x", "path": ".git/hooks/x"}, "policy: git's own", name="hook"),
    hostile("http_download", {"url": f"{URL}/endless", "path": "x"}, "limit: has more than", name="endless"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_call(case: Case, tmp_path: Path, server: Server) -> None:
    world = allowing(tmp_path, server, download_bytes=1_000_000)
    arguments = {
        name: value.replace("PORT", str(server.port)) if isinstance(value, str) else value
        for name, value in case.arguments.items()
    }
    await hold(Case(case.operation, case.kind, arguments, case.expected), world)

    assert not any("10.0.0.7" in headers["host"] for _, _, headers, _ in server.asked)
    if case.operation == "http_download" and case.kind != "good":
        assert list(world.root.iterdir()) == []
    await world.toolbox.close()


async def test_what_is_sent(tmp_path: Path, server: Server) -> None:
    world = allowing(tmp_path, server)
    url = f"http://a.test:{server.port}"
    await world.call("http_post", url=f"{url}/x?q=1", body={"a": 1}, headers={"Authorization": "Bearer t"})
    await world.call("http_get", url=f"{url}/to/http://b.test:{server.port}/y", headers={"Authorization": "Bearer t"})

    (method, path, headers, body), _, (_, _, after, _) = server.asked
    assert (method, path, body) == ("POST", "/x?q=1", b'{"a": 1}')
    assert (headers["host"], headers["authorization"]) == (f"a.test:{server.port}", "Bearer t")
    assert "authorization" not in after, "another server than the one it was meant for"
    await world.toolbox.close()


@pytest.mark.parametrize("host", BAD)
async def test_a_bad_address_is_not_connected_to(host: str, tmp_path: Path, server: Server) -> None:
    """The machine's own resolver is asked, which reads numbers in every way there is."""
    world = World(tmp_path, http={"ports": [server.port], "seconds": 2.0})

    result = await world.call("http_get", url=f"http://{host}:{server.port}/x")

    assert (result.ok, server.connections) == (False, 0)
    assert any(words in result.text for words in ("not public", "be resolved", "no URL")), result.text
    await world.toolbox.close()


@pytest.mark.parametrize("host", LOOPBACK)
async def test_a_bad_address_is_reached_without_the_guard(host: str, server: Server) -> None:
    """The positive control."""
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://{host}:{server.port}/x")).status_code == 200


class Recording(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self.connected: list[str] = []

    async def connect_tcp(self, host: str, port: int, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        self.connected.append(host)
        return httpcore.AsyncMockStream([])


def answers(*lists: Iterable[str]) -> Any:
    """A resolver that says something else each time."""
    waiting = iter(lists)

    async def resolve(host: str, port: int) -> list[str]:
        return list(next(waiting))

    return resolve


async def test_a_name_that_changes_its_address_is_connected_to_where_it_was_checked() -> None:
    inner = Recording()
    guard = GuardedNetwork(answers(["93.184.216.34"], ["127.0.0.1"]), (), inner)

    await guard.connect_tcp("rebinds.test", 80)
    assert inner.connected == ["93.184.216.34"]

    with pytest.raises(ToolError, match="not public"):
        await guard.connect_tcp("rebinds.test", 80)
    assert inner.connected == ["93.184.216.34"]


async def test_hosts_are_those_of_the_policy(tmp_path: Path, server: Server) -> None:
    world = allowing(tmp_path, server, hosts=["a.test", "*.b.test"])
    found = {}
    for host in ("a.test", "x.b.test", "b.test", "a.test.evil.test", "evila.test", "127.0.0.1"):
        found[host] = (await world.call("http_get", url=f"http://{host}:{server.port}/x")).ok
    assert [host for host, ok in found.items() if ok] == ["a.test", "x.b.test"]
    await world.toolbox.close()


@given(st.ip_addresses())
def test_what_is_public_is_global_too(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert address.is_global or not is_public(address)


@pytest.mark.parametrize("text", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses_are(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))
