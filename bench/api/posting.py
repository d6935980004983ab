"""The client: so many connections, each with one request under way at a time, for a stretch of time.

It speaks just enough HTTP to keep its own cost low. `python -m bench.api.posting '<json>'` measures one round and
prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count

import uvloop

WARM_UP_S = 1.0
SIZE = 500
"""Bytes of a task."""


@dataclass(frozen=True, slots=True)
class Posting:
    port: int
    clients: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Posted:
    """`accepted` requests in `seconds`; latencies in milliseconds. `others`: answers that were not 202."""

    accepted: int
    seconds: float
    p50_ms: float
    p99_ms: float
    others: int


class Poster:
    """One connection."""

    def __init__(self, posting: Posting, run: str, number: int) -> None:
        self._posting = posting
        self._head = f"{run}-{number}"
        self.latencies: list[tuple[float, float]] = []
        self.others = 0

    async def post_until(self, end: float) -> None:
        """Notes when each request began and how long it took."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._posting.port)
        for number in count():
            began = time.perf_counter()
            if began > end:
                break
            writer.write(request(f"{self._head}-{number}"))
            if await read_status(reader) == 202:
                self.latencies.append((began, time.perf_counter() - began))
            else:
                self.others += 1
        writer.close()


def request(task_id: str) -> bytes:
    body = json.dumps({"task_id": task_id, "input": "x" * (SIZE - 45 - len(task_id)), "metadata": {}}).encode()
    return http_request("POST", "/v1/tasks", body)


def http_request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def read_status(reader: asyncio.StreamReader) -> int:
    """Read a response and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def measure(posting: Posting) -> Posted:
    began = time.perf_counter() + WARM_UP_S
    end = began + posting.seconds
    run = os.urandom(4).hex()
    posters = [Poster(posting, run, number) for number in range(posting.clients)]
    await asyncio.gather(*(poster.post_until(end) for poster in posters))
    taken = sorted(took for poster in posters for at, took in poster.latencies if at >= began)
    return Posted(
        accepted=len(taken),
        seconds=posting.seconds,
        p50_ms=1000 * taken[len(taken) // 2],
        p99_ms=1000 * taken[int(len(taken) * 0.99)],
        others=sum(poster.others for poster in posters),
    )


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(measure(Posting(**json.loads(sys.argv[1])))))))
