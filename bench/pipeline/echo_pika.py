"""The bare echo: consume, publish with a confirm, ack when it came; pika's AsyncioConnection on uvloop, nothing else.

What a hop costs at least with this client. It validates nothing, retries nothing and does not reconnect.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pika
import uvloop
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel

from bench.pipeline.hops import Wiring

PERSISTENT = pika.BasicProperties(delivery_mode=2, content_type="application/json", type="task.v1")


class Hop:
    """One channel: what comes off `source` goes to `target`, and is acked when the broker has confirmed it."""

    def __init__(self, channel: Channel, prefetch: int, source: str, target: str) -> None:
        self.channel = channel
        self.target = target
        self.published = 0
        self.unconfirmed: dict[int, int] = {}
        channel.confirm_delivery(self.on_confirm)
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(source, self.on_message)

    def on_message(self, channel: Channel, method: Any, _properties: Any, body: bytes) -> None:
        self.published += 1
        self.unconfirmed[self.published] = method.delivery_tag
        channel.basic_publish("", self.target, body, PERSISTENT)

    def on_confirm(self, frame: Any) -> None:
        upto = frame.method.delivery_tag
        confirmed = [tag for tag in self.unconfirmed if tag <= upto] if frame.method.multiple else [upto]
        for tag in confirmed:
            self.channel.basic_ack(self.unconfirmed.pop(tag))


async def serve(wiring: Wiring) -> None:
    """Serve until the process is ended."""

    def open_hops(connection: AsyncioConnection) -> None:
        for source, target in wiring.hops:
            connection.channel(
                on_open_callback=lambda channel, pair=(source, target): Hop(channel, wiring.prefetch, *pair)
            )

    AsyncioConnection(pika.URLParameters(wiring.url), on_open_callback=open_hops)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Wiring.read()))
