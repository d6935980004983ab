"""Declares a fleet's queues, once, as a user that may; its services then need no such permission."""

from __future__ import annotations

import asyncio

from services.amqp.short_connection import BrokerUnreachable, without_password
from services.rabbitmq import RabbitBus
from services.settings import FleetSettings


async def declare(settings: FleetSettings, timeout_s: float) -> None:
    """Raises TopologyConflict, and BrokerUnreachable where no broker took it within the time."""
    url = settings.amqp_url.get_secret_value()
    bus = RabbitBus(url, settings.topology, name="setup", namespace=settings.namespace)
    try:
        async with asyncio.timeout(timeout_s):
            await bus.start()
    except TimeoutError:
        raise BrokerUnreachable(
            f"no broker at {without_password(url)} let the queues be declared within {timeout_s:g} s: {bus.trouble()}"
        ) from None
    await bus.stop(0.0)
