"""A consumer that a poisonous message kills, as generated text may kill an engine, started again after each death.

Arguments: AMQP URL, namespace. Each innocent message is answered on `rewards`, each death is a line on stdout.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import RESPONSES, REWARDS
from tests.ratchet.bus.bus_kit import poison_topology, put


async def consume(amqp_url: str, namespace: str) -> None:
    bus = RabbitBus(amqp_url, poison_topology(), name="victim", namespace=namespace)

    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(0.01)  # real time: a process of its own, until it is killed
        if delivery.body == b"poison":
            os.kill(os.getpid(), signal.SIGKILL)
        await put(bus, REWARDS, delivery.body)

    await bus.start()
    await bus.consume(RESPONSES, handle, prefetch=32)
    await asyncio.Event().wait()


def live_and_die(amqp_url: str, namespace: str) -> None:
    """A fork starts at once, where a new interpreter would import everything again."""
    while True:
        if not (life := os.fork()):
            asyncio.run(consume(amqp_url, namespace))
        _, status = os.waitpid(life, 0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    live_and_die(*sys.argv[1:])
