"""The bus over RabbitMQ: one connection to publish on, one to consume from, each of which comes back by itself.

The wire is in the other files of this folder; what becomes of failed messages is in ratchet/bus/retry_policy.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.bus.amqp.channel import ChannelLost, open_channel
from ratchet.bus.amqp.connection import HEARTBEAT_S, AmqpConnection, connection_parameters
from ratchet.bus.amqp.consumer import Consumer
from ratchet.bus.amqp.declaration import Declaration
from ratchet.bus.amqp.failures import Failures
from ratchet.bus.amqp.forwarding import LARGEST_BODY
from ratchet.bus.amqp.frames import PERSISTENT, Properties
from ratchet.bus.amqp.link import Link
from ratchet.bus.amqp.publisher import Publisher, Refused, Unreachable
from ratchet.bus.amqp.subscription import Listener
from ratchet.bus.claim_store import FOLDER, ClaimStore
from ratchet.bus.in_hand import STALLED_AFTER_S, ByteBudget, Progress, never
from ratchet.bus.protocol import BroadcastHandler, Handler, QueueState
from ratchet.bus.topology import BROADCAST_EXCHANGE, Topology, topology_of
from ratchet.service import failpoint
from ratchet.service.errors import BusError, Reject
from ratchet.service.metrics import BROKER_CONNECTED, queue_metrics
from ratchet.service.settings import FleetSettings, broker_user
from ratchet.service.telemetry import TRACE_HEADER, Log, trace_parent

REPLY_NACKS = 5
"""A user's own queue that refuses a message this often is taken for gone: its trouble must not hold up the fleet."""

_log = Log(__name__)


class RabbitBus:
    """Implements `ratchet.bus.protocol.Bus`. `namespace` is a prefix of every queue and exchange name on the wire.

    Without `declare` it waits until the topology is there: for a user of the broker that may not declare it.
    """

    def __init__(
        self,
        amqp_url: str,
        topology: Topology,
        *,
        name: str,
        namespace: str = "",
        publish_timeout_s: float = 30.0,
        declare: bool = True,
        store: ClaimStore | None = None,
        heartbeat_s: int = HEARTBEAT_S,
    ) -> None:
        self._declaration = Declaration(topology, namespace)
        self._prepare = self._declaration.declare if declare else self._declaration.require
        self._names = topology.names
        self._amqp_url = amqp_url
        self._name = name
        self._publish_timeout_s = publish_timeout_s
        self._store = store
        self._heartbeat_s = heartbeat_s
        self._budget = ByteBudget()
        self._consumers: list[Consumer] = []
        self._listeners: list[Listener] = []
        self._publisher: Publisher | None = None
        self._links: tuple[Link, Link] | None = None
        self._failures: Failures | None = None
        self._publishing_what_waits: asyncio.Task[None] | None = None
        self._state = "not started"

    @classmethod
    def from_settings(cls, settings: FleetSettings, *, name: str, heartbeat_s: int = HEARTBEAT_S) -> RabbitBus:
        """The bus of one service of the fleet; `name` is what the broker shows for its connections.

        A connection that is silent for twice `heartbeat_s` is closed by the broker; the URL's own heartbeat goes first.
        """
        return cls(
            settings.amqp_url.get_secret_value(),
            topology_of(settings),
            name=name,
            namespace=settings.namespace,
            publish_timeout_s=settings.publish_timeout_s,
            declare=settings.declare_topology,
            store=ClaimStore(settings.logs_dir / FOLDER),
            heartbeat_s=heartbeat_s,
        )

    async def start(self) -> None:
        """Implement `Bus.start`. Raises TopologyConflict where a queue exists with other arguments."""
        self._consumers = []
        self._listeners = []
        self._publisher = Publisher(self._publish_timeout_s)
        user = broker_user(self._amqp_url)
        self._failures = Failures(self._publisher, self._declaration, self._name, self._store, user)
        consuming = Link(self._parameters("consumes"), "consuming", self._prepare)
        publishing = Link(self._parameters("publishes"), "publishing", self._attach, self._note_blocked)
        self._links = (consuming, publishing)
        self._state = "starting"
        try:
            await consuming.start()
            await publishing.start()
        except BaseException:
            await self._disconnect()
            raise
        BROKER_CONNECTED.set_function(
            lambda: float(all(link.connection is not None for link in (consuming, publishing)))
        )
        self._state = "started"
        self._publishing_what_waits = asyncio.create_task(self._failures.keep_publishing_what_waits())

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        type: str,
        message_id: str,
        reply_to: str | None = None,
        correlation_id: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Implement `Bus.publish`. Raises Reject for a body that no broker takes."""
        if len(body) > LARGEST_BODY:
            raise Reject(f"a {type} of {len(body)} bytes is too large for {queue!r}: a broker takes {LARGEST_BODY}")
        properties = Properties(
            delivery_mode=PERSISTENT,
            content_type="application/json",
            type=type,
            message_id=message_id,
            reply_to=reply_to,
            correlation_id=correlation_id,
            headers=_add_trace(headers),
        )
        began = time.perf_counter()
        declaration = self._declaration
        await self._open_publisher.send(declaration.exchange, declaration.wire(queue), properties, body)
        if queue in self._names:
            queue_metrics(queue).publish_seconds.observe(time.perf_counter() - began)
        failpoint.reach("confirmed")

    async def reply(
        self, reply_to: str, body: bytes, *, type: str, message_id: str, correlation_id: str | None
    ) -> bool:
        """Implement `Bus.reply`.

        False also where the user's queue refuses the message repeatedly, or is the fleet's own.
        """
        if self._declaration.is_fleets_own(reply_to):
            _log.warning("reply-denied", f"reply_to names {reply_to!r}, a queue of the fleet: nothing is sent there")
            return False
        properties = Properties(
            delivery_mode=PERSISTENT,
            content_type="application/json",
            type=type,
            message_id=message_id,
            correlation_id=correlation_id,
            headers=_add_trace(None),
        )
        try:
            await self._open_publisher.send("", reply_to, properties, body, mandatory=True, most_nacks=REPLY_NACKS)
        except (Unreachable, Refused) as error:
            _log.info("reply-undeliverable", str(error), message_id=message_id)
            return False
        return True

    async def consume(
        self,
        queue: str,
        handler: Handler,
        *,
        prefetch: int,
        stalled_after_s: float | None = STALLED_AFTER_S,
        advanced_at: Callable[[], float] = never,
    ) -> None:
        """Implement `Bus.consume`. Returns when deliveries may come. Each call has its own channel."""
        self._declaration.topology.queue(queue)
        if self._links is None or self._failures is None or self._state != "started":
            raise BusError(f"can't consume {queue!r}: the bus is {self._state}")
        consumer = Consumer(
            queue,
            handler,
            prefetch,
            link=self._links[0],
            declaration=self._declaration,
            failures=self._failures,
            budget=self._budget,
            progress=Progress(stalled_after_s, advanced_at),
        )
        self._consumers.append(consumer)
        await consumer.start()

    async def broadcast(self, topic: str, body: bytes, *, type: str, message_id: str) -> None:
        properties = Properties(
            delivery_mode=PERSISTENT,
            content_type="application/json",
            type=type,
            message_id=message_id,
            headers=_add_trace(None),
        )
        declaration = self._declaration
        await self._open_publisher.send(declaration.wire(BROADCAST_EXCHANGE), declaration.wire(topic), properties, body)

    async def listen(self, topic: str, handler: BroadcastHandler) -> None:
        if self._links is None or self._state != "started":
            raise BusError(f"can't listen to {topic!r}: the bus is {self._state}")
        listener = Listener(topic, handler, link=self._links[0], declaration=self._declaration)
        self._listeners.append(listener)
        await listener.start()

    async def state(self, queue: str) -> QueueState:
        connection = self._links[1].connection if self._links else None
        if connection is None:
            raise BusError(f"can't ask for the state of {queue!r}: {self.trouble()}")
        try:
            channel = await open_channel(connection)
            name = self._declaration.wire(queue)
            frame = await channel.call(channel.raw.queue_declare, queue=name, passive=True)
        except (ChannelLost, TimeoutError) as error:
            raise BusError(f"the broker can't say the state of {queue!r}: {error}") from error
        channel.close()
        return QueueState(frame.method.message_count, frame.method.consumer_count)

    async def stop(self, grace_s: float) -> bool:
        """Implement `Bus.stop`. Handlers that run after the grace are cancelled, and their messages handed back."""
        if self._state != "started":
            await self._disconnect()
            return True
        self._state = "draining"
        before = sum(consumer.unfinished for consumer in self._consumers)
        await asyncio.gather(
            *(one.stop() for one in self._listeners), *(one.stop_deliveries() for one in self._consumers)
        )
        running = {task for consumer in self._consumers for task in consumer.running}
        if running:
            await asyncio.wait(running, timeout=grace_s)
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=1.0)
        for consumer in self._consumers:
            consumer.close()
        await self._disconnect()
        handed_back = sum(consumer.unfinished for consumer in self._consumers) - before
        if handed_back:
            _log.info("handed-back", f"{handed_back} messages were not finished in time and will be delivered again")
        return handed_back == 0

    def trouble(self) -> str | None:
        failures, publisher = self._failures, self._publisher
        if self._links is None or publisher is None or failures is None or self._state in ("draining", "stopped"):
            return f"the bus is {self._state}"
        parts: tuple[Link | Publisher | Failures | Consumer | Listener, ...] = (
            *self._links,
            publisher,
            failures,
            *self._consumers,
            *self._listeners,
        )
        return next((trouble for part in parts if (trouble := part.trouble())), None)

    def delivery_trouble(self, queue: str) -> str | None:
        if self._links is None or self._state in ("draining", "stopped"):
            return f"the bus is {self._state}"
        of_links = (link.trouble() for link in self._links)
        of_consumers = (one.subscription_trouble() for one in self._consumers if one.queue == queue)
        return next((trouble for trouble in (*of_links, *of_consumers) if trouble), None)

    def stall_reason(self) -> str | None:
        return next((stalled for consumer in self._consumers if (stalled := consumer.stall_reason())), None)

    @property
    def _open_publisher(self) -> Publisher:
        if self._publisher is None or self._state not in ("started", "draining"):
            raise BusError(f"can't publish: the bus is {self._state}")
        return self._publisher

    def _parameters(self, purpose: str) -> Any:
        return connection_parameters(self._amqp_url, f"{self._name} {purpose}", self._heartbeat_s)

    async def _attach(self, connection: AmqpConnection) -> None:
        assert self._publisher is not None
        if self._state == "started":  # while starting, the consuming connection has just declared it
            await self._prepare(connection)
        await self._publisher.attach(connection)

    def _note_blocked(self) -> None:
        if self._links is not None and self._publisher is not None:
            self._publisher.set_blocked(self._links[1].blocked is not None)

    async def _disconnect(self) -> None:
        self._state = "stopped"
        if self._publishing_what_waits is not None:
            self._publishing_what_waits.cancel()
            await asyncio.wait((self._publishing_what_waits,))
        if self._publisher is not None:
            self._publisher.close()
        for link in self._links or ():
            await link.close()


def _add_trace(headers: Mapping[str, Any] | None) -> dict[str, Any] | None:
    trace = trace_parent.get()
    if trace is None:
        return dict(headers) if headers else None
    return {**headers, TRACE_HEADER: trace} if headers else {TRACE_HEADER: trace}
