"""A client that costs next to nothing, so that what is measured is what it talks to: one connection an agent."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

LARGEST_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Reply:
    """Seconds from the request to the first token of the answer, and to its end. Of one that comes whole, alike."""

    text: str
    first_s: float
    whole_s: float


class Failed(Exception):
    """It answered with no answer."""


class Connection:
    """`base_url` with the path before `/chat/completions`; opened when asked, and again once closed."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        url = urlsplit(base_url)
        assert url.hostname is not None and url.port is not None
        self._where = url.hostname, url.port
        lines = [f"POST {url.path}/chat/completions HTTP/1.1", f"Host: {url.netloc}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join(lines) + "\r\nContent-Length: "
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: Mapping[str, Any]) -> Reply:
        """Raises Failed."""
        raw = json.dumps(body).encode()
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._where, limit=LARGEST_HEAD)
        reader, writer = self._streams
        began = time.perf_counter()
        writer.write(f"{self._head}{len(raw)}\r\n\r\n".encode() + raw)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        parts = _parts(reader, head)
        if not head.startswith(b"http/1.1 200"):
            said = b"".join([part async for part in parts])
            raise Failed(f"{head.splitlines()[0].decode()}: {said[:500].decode(errors='replace')}")
        streamed = b"text/event-stream" in head
        reply = await (_streamed if streamed else _whole)(parts, began)
        if b"connection: close" in head:
            await self.aclose()
        return reply

    async def aclose(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _parts(reader: asyncio.StreamReader, head: bytes) -> AsyncIterator[bytes]:
    """Of the body, as they come."""
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:size]
        await reader.readline()
        return
    _, _, rest = head.partition(b"content-length:")
    yield await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))


async def _whole(parts: AsyncIterator[bytes], began: float) -> Reply:
    raw = b"".join([part async for part in parts])
    took = time.perf_counter() - began
    return Reply(json.loads(raw)["choices"][0]["message"]["content"], took, took)


async def _streamed(parts: AsyncIterator[bytes], began: float) -> Reply:
    had, text, first_s, ended = b"", "", 0.0, False
    async for part in parts:
        *events, had = (had + part).split(b"\n\n")
        for event in events:
            data = event.removeprefix(b"data: ")
            if data == b"[DONE]":
                ended = True
                continue
            told = json.loads(data)
            if "error" in told:
                raise Failed(str(told["error"]))
            for choice in told["choices"]:
                if more := choice["delta"].get("content"):
                    first_s = first_s or time.perf_counter() - began
                    text += more
    if not ended:
        raise Failed(f"the stream broke off behind {text[-100:]!r}")
    return Reply(text, first_s, time.perf_counter() - began)
