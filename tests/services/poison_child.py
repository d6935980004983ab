"""A consumer that a poisonous message kills, as generated text may kill an engine: run as a process, again and again.

Arguments: AMQP URL, namespace. Each innocent message is answered on `rewards`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from services.bus import Delivery
from services.rabbitmq import RabbitBus
from services.topology import RESPONSES, REWARDS
from tests.services.bus_kit import poison_topology, put


async def main(amqp_url: str, namespace: str) -> None:
    bus = RabbitBus(amqp_url, poison_topology(), name="victim", namespace=namespace)

    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(0.01)
        if delivery.body == b"poison":
            os.kill(os.getpid(), signal.SIGKILL)
        await put(bus, REWARDS, delivery.body)

    await bus.start()
    await bus.consume(RESPONSES, handle, prefetch=32)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
