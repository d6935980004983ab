"""The hops as one writes them with FastStream: a subscriber that returns, a publisher that sends what it returned."""

from __future__ import annotations

from typing import Any

import uvloop
from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from bench.pipeline.hops import Wiring, arguments


def queue(wiring: Wiring, name: str) -> RabbitQueue:
    declared = arguments(name.removeprefix(wiring.namespace))
    return RabbitQueue(name, queue_type=QueueType.QUORUM, durable=True, arguments=declared)


def hop(broker: RabbitBroker, source: RabbitQueue, target: RabbitQueue) -> None:
    @broker.subscriber(source, ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.publisher(target, persist=True)
    async def forward(body: dict[str, Any]) -> dict[str, Any]:
        return body


def app(wiring: Wiring) -> FastStream:
    broker = RabbitBroker(
        wiring.url, default_channel=Channel(prefetch_count=wiring.prefetch, publisher_confirms=True), logger=None
    )
    for source, target in wiring.hops:
        hop(broker, queue(wiring, source), queue(wiring, target))
    return FastStream(broker, logger=None)


if __name__ == "__main__":
    uvloop.run(app(Wiring.read()).run())
