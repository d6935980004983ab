"""The parent's end of the socket pair, on its event loop: what is sent in one turn of the loop leaves together."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, Self

from services.agent.engines.own_process.framing import READ_BYTES, Frames, framed


class Pipe:
    """`open` makes one. For one reader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []
        self._frames = Frames()
        self._received: deque[Any] = deque()

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """The pipe owns the socket from now on."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, item: Any) -> None:
        """Raises what pickle raises. To an end that is closed it goes nowhere: `receive` tells of that."""
        frame = framed(item)
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)

    def _flush(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(self._outgoing))
        self._outgoing.clear()

    async def receive(self) -> Any:
        """The next object, in the order they were sent. Raises EOFError once the other end is closed."""
        while not self._received:
            try:
                piece = await self._reader.read(READ_BYTES)
            except OSError as error:
                raise EOFError from error
            if not piece:
                raise EOFError
            self._received.extend(self._frames.take(piece))
        return self._received.popleft()

    def close(self) -> None:
        """At once: what was sent and has not left is dropped, however long the other end may be busy."""
        self._writer.transport.abort()
