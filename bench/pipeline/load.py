"""The client: keeps a window of tasks in the air, reads the results, and measures a stretch of steady state.

`python -m bench.pipeline.load '<json>'` measures one round and prints one line of JSON; its own CPU time counts too.
It counts answers and does not look into them: that none is lost or doubled is what bench/faults proves.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pika
import uvloop
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel

from bench.pipeline.cpu import cpu_seconds
from ratchet.bus.topology import RESULTS, TASKS
from schemas import Task
from schemas.messages.base import Metadata

WINDOW = 512
ACK_EVERY = 64
WARM_UP_S = 1.5
DRAIN_S = 60.0
SCRAMBLE = 2_654_435_761
"""A prime: multiples of it, modulo a power of ten, are all different."""
FLUSH_S = 0.2
"""Time for the last acks to leave."""


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement: the queues, the size of a task in bytes, seconds, and the processes whose CPU time counts."""

    url: str
    namespace: str
    size: int
    seconds: float
    groups: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """`answered` in `seconds`, with that much CPU time by group; `missing` never came back."""

    answered: int
    seconds: float
    cpu_s: dict[str, float]
    missing: int


def task_bodies(size: int) -> Iterator[bytes]:
    """Tasks of exactly `size` bytes of JSON, half of what is free in the input and half in the reference.

    Their ids are in no order, as users' are, so that an index over them gets no help.
    """
    run = os.urandom(6).hex()
    metadata = Metadata(timestamp=datetime.now(UTC), source="bench")
    empty = Task(task_id=f"{run}-{0:09d}", input="", reference="", metadata=metadata)
    half, odd = divmod(size - len(empty.encode()), 2)
    padded = empty.model_copy(update={"input": "x" * (half + odd), "reference": "x" * half}).encode()
    head, tail = padded.split(f"{0:09d}".encode())
    for number in itertools.count():
        yield head + f"{number * SCRAMBLE % 10**9:09d}".encode() + tail


class Client:
    """Publishes while `publishing`, and counts; by plain AMQP, on a thread of its own."""

    def __init__(self, round_: Round) -> None:
        self.published = self.answered = 0
        self.publishing = True
        self._round = round_
        self._bodies = task_bodies(round_.size)
        self._properties = pika.BasicProperties(delivery_mode=2, content_type="application/json", type="task.v1")
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        loop = uvloop.new_event_loop()
        AsyncioConnection(pika.URLParameters(self._round.url), on_open_callback=self._open_channel, custom_ioloop=loop)
        loop.run_forever()

    def _open_channel(self, connection: AsyncioConnection) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Channel) -> None:
        channel.confirm_delivery(lambda _frame: None)
        channel.basic_qos(prefetch_count=2 * WINDOW)
        channel.basic_consume(self._round.namespace + RESULTS, self._on_result)
        self._fill(channel)

    def _fill(self, channel: Channel) -> None:
        target = self._round.namespace + TASKS
        while self.publishing and self.published - self.answered < WINDOW:
            channel.basic_publish("", target, next(self._bodies), self._properties)
            self.published += 1

    def _on_result(self, channel: Channel, method: Any, _properties: Any, _body: bytes) -> None:
        self.answered += 1
        if self.answered % ACK_EVERY == 0 or self.answered == self.published:
            channel.basic_ack(method.delivery_tag, multiple=True)
        self._fill(channel)


def measure(round_: Round) -> Measured:
    """Warm up, take a stretch, let all that is in the air come back."""
    groups = {**round_.groups, "client": [os.getpid()]}
    client = Client(round_)
    _wait_for(lambda: client.answered >= WINDOW)
    time.sleep(WARM_UP_S)
    before, answered, started = cpu_seconds(groups), client.answered, time.monotonic()
    time.sleep(round_.seconds)
    after, answered, ended = cpu_seconds(groups), client.answered - answered, time.monotonic()
    client.publishing = False
    _wait_for(lambda: client.answered >= client.published)
    time.sleep(FLUSH_S)
    used = {name: after[name] - before[name] for name in groups}
    return Measured(answered, ended - started, used, client.published - client.answered)


def _wait_for(done: Any) -> None:
    deadline = time.monotonic() + DRAIN_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Round(**json.loads(sys.argv[1]))))))
    sys.stdout.flush()
    os._exit(0)
