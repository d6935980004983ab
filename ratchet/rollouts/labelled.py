"""Stderr of programs that run side by side, line by line behind a label that tells them apart."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

BLOCK_BYTES = 65_536
LEFT_S = 1.0
"""For what is still to be written when the program has ended; a process that outlives it is not waited for."""


@asynccontextmanager
async def labelled_stderr(label: str) -> AsyncIterator[int | None]:
    """The file descriptor that is a process's stderr within the block; None, which is our own, without a label."""
    if not label:
        yield None
        return
    reading, writing = os.pipe()
    stream = asyncio.StreamReader()
    pipe = os.fdopen(reading, "rb", 0)  # the transport closes it
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    copying = asyncio.create_task(_copied(stream, label))
    try:
        yield writing
    finally:
        os.close(writing)
        with suppress(TimeoutError):
            await asyncio.wait_for(copying, LEFT_S)
        transport.close()


async def _copied(stream: asyncio.StreamReader, label: str) -> None:
    """A line that is longer than a block, or the last one without an end, is written as a line."""
    rest = b""
    while block := await stream.read(BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > BLOCK_BYTES:
            lines, rest = [*lines, rest], b""
        _write(lines, label)
    _write([rest] if rest else [], label)


def _write(lines: list[bytes], label: str) -> None:
    sys.stderr.write("".join(f"{label}{line.decode(errors='replace')}\n" for line in lines))
    sys.stderr.flush()
