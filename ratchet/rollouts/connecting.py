"""The bus of one who answers Work that comes to a queue of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import BrokerUnreachable, open_connection, without_password
from ratchet.bus.topology import Queue, Topology
from ratchet.service.errors import BusError

CONNECT_S = 30.0
EXPIRES_MS = 3_600_000
"""Its queue is kept so long for one who comes back."""
MOST_BYTES = 64 * 1024 * 1024


async def own_bus(amqp_url: str, namespace: str, queue: str, *, name: str) -> RabbitBus:
    """A started bus for answering Work that comes to `queue`, which is made if need be.

    Raises BrokerUnreachable, at once where nobody answers at first.
    """
    await asyncio.to_thread(_require_broker, amqp_url)
    own = Queue(
        queue,
        "any",
        ("orchestrator",),
        ("whoever records",),
        "What comes to one who records.",
        1.0,
        MOST_BYTES,
        dead_letters=False,
        expires_ms=EXPIRES_MS,
    )
    bus = RabbitBus(amqp_url, Topology((own,), ()), name=name, namespace=namespace, declare=False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await bus.start()
    except TimeoutError:
        where = without_password(amqp_url)
        raise BrokerUnreachable(f"no fleet at {where} within {CONNECT_S:g} s ({bus.trouble()})") from None
    return bus


def delete_queue(amqp_url: str, queue: str) -> None:
    """Delete the queue by its name on the wire, once nothing comes any more. If it can't be, it expires."""
    with suppress(BusError), open_connection(amqp_url) as connection:
        connection.channel().queue_delete(queue)


def _require_broker(amqp_url: str) -> None:
    with open_connection(amqp_url):
        pass
