"""The hops as one writes them with aio-pika: a robust connection, publisher confirms, `message.process()`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aio_pika
import uvloop
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection

from bench.pipeline.hops import Wiring


async def hop(connection: AbstractRobustConnection, prefetch: int, source: str, target: str) -> None:
    channel = await connection.channel(publisher_confirms=True)
    await channel.set_qos(prefetch_count=prefetch)
    queue = await channel.get_queue(source)
    await queue.consume(forwarder(channel.default_exchange, target))


def forwarder(
    exchange: aio_pika.abc.AbstractExchange, target: str
) -> Callable[[AbstractIncomingMessage], Awaitable[None]]:
    async def forward(message: AbstractIncomingMessage) -> None:
        async with message.process():
            onward = aio_pika.Message(message.body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, type=message.type)
            await exchange.publish(onward, routing_key=target)

    return forward


async def serve(wiring: Wiring) -> None:
    connection = await aio_pika.connect_robust(wiring.url)
    for source, target in wiring.hops:
        await hop(connection, wiring.prefetch, source, target)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Wiring.read()))
