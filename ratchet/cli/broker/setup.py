"""Declares a fleet's queues, once, as a user that may; its services then need no such permission."""

from __future__ import annotations

import asyncio

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import BrokerUnreachable, without_password
from ratchet.bus.topology import topology_of
from ratchet.service.settings import FleetSettings


async def declare(settings: FleetSettings, timeout_s: float) -> None:
    """Raises TopologyConflict, and BrokerUnreachable where no broker took it within the time."""
    url = settings.amqp_url.get_secret_value()
    bus = RabbitBus(url, topology_of(settings), name="setup", namespace=settings.namespace)
    try:
        async with asyncio.timeout(timeout_s):
            await bus.start()
    except TimeoutError:
        raise BrokerUnreachable(
            f"no broker at {without_password(url)} let the queues be declared within {timeout_s:g} s: {bus.trouble()}"
        ) from None
    await bus.stop(0.0)
