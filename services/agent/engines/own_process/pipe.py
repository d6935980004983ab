"""Python objects both ways over one end of a socket pair: what is sent in one turn of the event loop leaves together.

Pickled, so for a process and its own child only.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from typing import Any, Self

LENGTH = struct.Struct(">Q")


class Pipe:
    """`open` makes one. Not for several readers at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._outgoing: list[bytes] = []

    @classmethod
    async def open(cls, end: socket.socket) -> Self:
        """The pipe owns the socket from now on."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, item: Any) -> None:
        """Raises what pickle raises. To an end that is closed it goes nowhere: `receive` tells of that."""
        body = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += (LENGTH.pack(len(body)), body)

    def _flush(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"".join(self._outgoing))
        self._outgoing.clear()

    async def receive(self) -> Any:
        """The next item, in the order they were sent. Raises EOFError once the other end is closed."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        self._writer.close()
