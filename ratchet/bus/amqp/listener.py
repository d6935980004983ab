"""Listens to a broadcast topic: a queue of this process's own, gone with its connection, made anew with the next.

Nothing is acknowledged and nothing kept for who is away: what is broadcast is repeated, or can be missed.
"""

from __future__ import annotations

import asyncio
import random
import uuid

from pika.exceptions import AMQPError

from ratchet.bus.amqp.channel import open_channel
from ratchet.bus.amqp.connection import AmqpConnection, Receiver
from ratchet.bus.amqp.declaration import Declaration
from ratchet.bus.amqp.frames import Properties
from ratchet.bus.amqp.link import FIRST_PAUSE_S, LONGEST_PAUSE_S, Link, explain
from ratchet.bus.protocol import BroadcastHandler, Delivery
from ratchet.bus.retry_policy import pause_s
from ratchet.bus.topology import BROADCAST_EXCHANGE, LISTENER
from ratchet.concurrency.keyed import cancelled_by_us
from ratchet.service.errors import BusError
from ratchet.service.telemetry import Log

MOST_WAITING = 10_000
"""Messages kept for a listener that is slow; the oldest go first."""

_log = Log(__name__)


class Listener:
    """Runs from `start` until `stop`."""

    def __init__(self, topic: str, handler: BroadcastHandler, *, link: Link, declaration: Declaration) -> None:
        self._topic = topic
        self._handler = handler
        self._link = link
        self._declaration = declaration
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trouble: str | None = "not subscribed yet"

    async def start(self) -> None:
        """Returns when it is bound to the topic."""
        self._task = asyncio.create_task(self._keep_listening())
        await self._first

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def trouble(self) -> str | None:
        return f"not listening to {self._topic!r}: {self._trouble}" if self._trouble else None

    async def _keep_listening(self) -> None:
        failures = 0
        while True:
            connection = await self._link.wait_open()
            failures += 1
            try:
                await self._listen(connection)
                failures = 0
            except (BusError, AMQPError, TimeoutError) as error:
                self._trouble = explain(error)
                _log.warning("listener-lost", f"{self._topic}: {self._trouble}; listening again", topic=self._topic)
            except asyncio.CancelledError as error:
                if cancelled_by_us():
                    raise
                self._trouble = explain(error)
            await asyncio.sleep(pause_s(failures, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random()))

    async def _listen(self, connection: AmqpConnection) -> None:
        """Returns when the channel is gone."""
        channel = await open_channel(connection)
        bounds = {"x-max-length": MOST_WAITING}
        name = self._declaration.wire(f"{LISTENER}{uuid.uuid4().hex}")
        await channel.call(channel.raw.queue_declare, queue=name, exclusive=True, auto_delete=True, arguments=bounds)
        exchange, topic = self._declaration.wire(BROADCAST_EXCHANGE), self._declaration.wire(self._topic)
        await channel.call(channel.raw.queue_bind, queue=name, exchange=exchange, routing_key=topic)
        connection.receivers[channel.number] = self._receiver()
        await channel.call(
            channel.raw.basic_consume, queue=name, on_message_callback=lambda *_message: None, auto_ack=True
        )
        self._trouble = None
        _log.info("listening", f"listening to {self._topic}", topic=self._topic)
        if not self._first.done():
            self._first.set_result(None)
        lost = await asyncio.shield(channel.lost)
        self._trouble = explain(lost)

    def _receiver(self) -> Receiver:
        def receive(_tag: int, _redelivered: bool, properties: Properties, body: bytes) -> None:
            headers = properties.headers or {}
            delivery = Delivery(self._topic, body, properties.type, properties.message_id, headers=headers)
            try:
                self._handler(delivery)
            except Exception as error:
                _log.error("hearing-failed", f"{self._topic}: {error}", exc_info=error)

        return receive
