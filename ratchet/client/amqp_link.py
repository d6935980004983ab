"""A link over AMQP: publishes with confirms, receives on a queue of its own, and connects again by itself.

The queue ends with its connection, so what comes on it is not acknowledged. At the next connection the client submits
again what is not answered.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import AsyncExitStack

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractExchange, AbstractIncomingMessage
from aiormq import exceptions as refusals

from ratchet.bus.amqp.short_connection import broker_unreachable
from ratchet.bus.protocol import derived_id
from ratchet.bus.topology import EXCHANGE, FEEDBACK, TASKS, TRAINING
from ratchet.client.fleet import PAUSE_S, RECONNECT_S, AsyncFleet, Sent
from ratchet.logs.tenants import MARK
from ratchet.service.errors import FleetError
from ratchet.service.settings import amqp_parameters
from schemas.messages.feedback import Feedback
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest

CONNECT_S, CONFIRM_S = 10.0, 30.0
"""The connection is given up after so long without a confirm: a publish can hang in one that looks open."""
ROUTES = {Task: (TASKS, "task"), Feedback: (FEEDBACK, "feedback"), TrainRequest: (TRAINING, "request")}
"""The queue of each message, and what its id is called, without `_id`."""
logging.getLogger("aiormq").addHandler(logging.NullHandler())  # its errors are raised as ours; logging prints them else
LOST = (refusals.AMQPError, refusals.ChannelInvalidStateError, OSError, TimeoutError)
LOGIN_REFUSED = (refusals.AuthenticationError, refusals.ProbableAuthenticationError)


async def _close(connection: AbstractConnection) -> None:
    """End a connection. If it is broken, errors of its end are of no use, a cancelled task of its own among them."""
    await asyncio.gather(connection.close(), return_exceptions=True)


class AmqpLink:
    """Connects at once, on the running loop."""

    def __init__(self, url: str, namespace: str, fleet: AsyncFleet) -> None:
        self._url, self._namespace, self._fleet = url, namespace, fleet
        self._parameters = amqp_parameters(url)
        self._reply_to: str | None = None
        self._ready, self._broken = asyncio.Event(), asyncio.Event()
        self._connecting = asyncio.create_task(self._stay_connected())

    async def send(self, message: Sent) -> None:
        """Return once the broker has it. It goes through the fleet's exchange, the only one that a user of the fleet
        needs to be allowed to write to."""
        queue, kind = ROUTES[type(message)]
        name = str(getattr(message, f"{kind}_id"))
        while True:
            await self._ready.wait()
            if self._fleet.fault:
                raise self._fleet.fault
            exchange, broken = self._exchange, self._broken
            sent = aio_pika.Message(
                message.encode(),
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                type=message.TYPE,
                message_id=derived_id(name, kind),
                reply_to=self._reply_to if queue == TASKS else None,
                # a task that is named by its key, with its tenant: so its Result comes under that id, too
                correlation_id=name if queue == TASKS and name.startswith(MARK) else None,
                user_id=self._parameters.credentials.username,
            )
            try:
                await exchange.publish(sent, self._namespace + queue, mandatory=False, timeout=CONFIRM_S)
                self._fleet.refusing = None
                return
            except refusals.DeliveryError:
                self._fleet.refusing = queue
            except LOST as error:
                self._end_if_refused(error)
                broken.set()
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        self._connecting.cancel()
        await asyncio.gather(self._connecting, return_exceptions=True)

    async def _stay_connected(self) -> None:
        """Connect, again and again, until there is a fault. Closes what it opened when it is cancelled."""
        loop, tls = asyncio.get_running_loop(), self._parameters.ssl_options
        lost_at: float | None = None
        while not self._fleet.fault:
            self._broken = asyncio.Event()
            connecting = aio_pika.connect(self._url, ssl_context=tls.context if tls else None)
            try:
                async with asyncio.timeout(CONNECT_S) as limit, AsyncExitStack() as opened:
                    connection = await connecting
                    opened.push_async_callback(_close, connection)
                    self._exchange = await self._prepare(connection, self._broken)
                    limit.reschedule(None)
                    self._ready.set()
                    if lost_at is not None:
                        self._fleet.send_open_again()
                    await self._broken.wait()
                    self._ready.clear()
                    lost_at = loop.time()
            except LOST as error:
                self._end_if_refused(error)
                if lost_at is None or loop.time() - lost_at > RECONNECT_S:
                    hangs, refused = isinstance(error, TimeoutError), isinstance(error, LOGIN_REFUSED)
                    self._fleet.fail(broker_unreachable(self._url, hangs=hangs, refused=refused))
                await asyncio.sleep(PAUSE_S)
        self._ready.set()

    async def _prepare(self, connection: AbstractConnection, broken: asyncio.Event) -> AbstractExchange:
        """Return the exchange, on a channel that receives too. `broken` is set when any of it ends."""
        connection.close_callbacks.add(lambda *_: broken.set())
        channel = await connection.channel()
        channel.close_callbacks.add(lambda *_: broken.set())
        (await channel.get_underlay_channel()).on_consumer_cancel_callbacks.add(lambda _: broken.set())
        if self._fleet.replies:
            queue = await channel.declare_queue(f"{self._namespace}reply.{uuid.uuid4().hex}", exclusive=True)
            await queue.consume(self._receive, no_ack=True)
            self._reply_to = queue.name
        return await channel.get_exchange(self._namespace + EXCHANGE, ensure=False)

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        self._fleet.receive(message.body)

    def _end_if_refused(self, error: BaseException) -> None:
        if isinstance(error, refusals.ChannelNotFoundEntity):
            why = f"the broker has no exchange {self._namespace + EXCHANGE!r}: the fleet was never up here: ratchet up"
            self._fleet.fail(FleetError(why))
        elif isinstance(error, refusals.ChannelAccessRefused):
            self._fleet.fail(FleetError(f"the broker does not let this user ask tasks: {error}"))
