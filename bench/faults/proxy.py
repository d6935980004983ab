"""A TCP proxy between one service and its broker that can swallow everything, as a firewall does, or cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

CHUNK = 65_536


class Proxy:
    """Passes everything on until it is told otherwise. Runs in the event loop that started it."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def start(cls, target_port: int) -> Self:
        proxy = cls(target_port)
        proxy._server = await asyncio.start_server(proxy._join, "127.0.0.1", 0)
        return proxy

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def swallow(self) -> None:
        """No byte arrives any more, in either direction; connections stay open, and new ones are taken."""
        self._open.clear()

    def pass_on(self) -> None:
        """What was swallowed arrives, as it does when TCP sends it again."""
        self._open.set()

    def cut(self) -> None:
        """Every connection is reset."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        with suppress(OSError):
            back, there = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(there)
            await asyncio.gather(self._pump(reader, there), self._pump(back, writer))
        for one in (writer, there):
            if one is not None:
                self._writers.discard(one)
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises OSError at the end, so that the other direction ends too."""
        while data := await reader.read(CHUNK):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
