"""A thousand clients of the stream of events, and beside them one that reads nothing, while tasks are answered.

`python -m bench.api.listening '<json>'` holds the connections and prints one line of JSON: what each client got, and
how old an event was when it came (a client and the orchestrator share one clock here).
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import uvloop

MARK = b"event: task.settled"
TOGETHER = 50
"""Connections opened at a time."""
SMALL_SEGMENTS = 536
"""Bytes: with them the kernel keeps some 50 kB for a client that reads nothing, and not the megabytes of loopback."""


@dataclass(frozen=True, slots=True)
class Listening:
    """`tasks`: so many settled tasks each client waits for, but no longer than `seconds`. `stopped`: with one more
    client, that reads nothing."""

    port: int
    clients: int
    tasks: int
    seconds: float
    stopped: bool = True


@dataclass(frozen=True, slots=True)
class Heard:
    """Of the clients that read: the least and the most events one got; ages in milliseconds, as the first one saw."""

    least: int
    most: int
    gaps: int
    p50_ms: float
    p99_ms: float


class Listener:
    def __init__(self, *, watches: bool) -> None:
        self.events = self.gaps = 0
        self.ages: list[float] = []
        self._watches = watches
        self._tail = b""

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(b"GET /v1/events?kinds=task.settled HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await self._reader.readuntil(b"retry: 2000")

    async def listen(self, tasks: int) -> None:
        while self.events < tasks and (data := await self._reader.read(1 << 16)):
            blocks, _, self._tail = (self._tail + data).rpartition(b"\n\n")
            self.events += blocks.count(MARK)
            self.gaps += blocks.count(b"event: gap")
            if self._watches:
                self._note_ages(blocks)

    def _note_ages(self, blocks: bytes) -> None:
        now = datetime.now(UTC)
        for line in blocks.splitlines():
            if line.startswith(b"data: ") and b'"task_id"' in line:
                at = datetime.fromisoformat(json.loads(line[6:])["at"])
                self.ages.append(1000 * (now - at).total_seconds())


async def measure(listening: Listening) -> Heard:
    stopped = _stopped(listening.port) if listening.stopped else None
    listeners = [Listener(watches=number == 0) for number in range(listening.clients)]
    for start in range(0, len(listeners), TOGETHER):
        await asyncio.gather(*(one.connect(listening.port) for one in listeners[start : start + TOGETHER]))
    print("connected", flush=True)
    hearing = [asyncio.create_task(one.listen(listening.tasks)) for one in listeners]
    await asyncio.wait(hearing, timeout=listening.seconds)
    if stopped is not None:
        stopped.close()
    ages = sorted(listeners[0].ages) or [float("nan")]
    return Heard(
        least=min(one.events for one in listeners),
        most=max(one.events for one in listeners),
        gaps=sum(one.gaps for one in listeners),
        p50_ms=ages[len(ages) // 2],
        p99_ms=ages[int(len(ages) * 0.99)],
    )


def _stopped(port: int) -> socket.socket:
    """A client that asks and never reads, with as little room for what comes as the kernel allows at both ends."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENTS)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(measure(Listening(**json.loads(sys.argv[1])))))))
