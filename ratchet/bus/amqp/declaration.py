"""Declares a topology on a broker. Declaring what is there already, with the same arguments, changes nothing.

A queue with another bound in bytes, or none, as a fleet of another version or setting declared it, is taken as it is.
Leaves out: migrating a queue whose other arguments changed; that needs a person, and the error says what to do.
"""

from __future__ import annotations

import re
from typing import Any

from ratchet.bus.amqp.channel import AmqpChannel, ChannelLost, open_channel
from ratchet.bus.amqp.connection import AmqpConnection
from ratchet.bus.retry_policy import MAX_BYTES, Rung
from ratchet.bus.topology import (
    AUDIT_SCORES,
    AUDITS,
    BROADCAST_EXCHANGE,
    DEAD_EXCHANGE,
    DEAD_LETTERS,
    EXCHANGE,
    KEPT_RESPONSES,
    LISTENER,
    RESPONSES,
    REWARDS,
    UNROUTABLE,
    UNROUTABLE_EXCHANGE,
    Queue,
    Topology,
)
from ratchet.service.errors import BusError
from ratchet.service.telemetry import Log

_log = Log(__name__)

OWN_QUEUES = (KEPT_RESPONSES, AUDITS, AUDIT_SCORES)
"""The queues of fleets with an external scorer or an auditor: another fleet's names all the same."""
PRECONDITION_FAILED = 406
NOT_FOUND = 404
CURRENT = re.compile(r"but current is '(\d+)'")
"""Finds the argument of the queue that is there, in the broker's refusal."""


class TopologyConflict(BusError):
    """A queue or exchange of that name exists with other arguments."""


class Declaration:
    """A topology under a namespace: a prefix of every queue and exchange name on the wire."""

    def __init__(self, topology: Topology, namespace: str = "") -> None:
        self.topology = topology
        self.namespace = namespace
        self.exchange = namespace + EXCHANGE
        self._told = set[str]()
        """Queues with another bound, of which a person was told."""

    def wire(self, name: str) -> str:
        """A queue's or exchange's name on the wire; on the exchange `ratchet` it is also the queue's routing key."""
        return self.namespace + name

    def is_fleets_own(self, queue: str) -> bool:
        """Return whether a queue of that name on the wire is the fleet's: no answer is sent there because a task
        says so."""
        name = queue.removeprefix(self.namespace)
        own = {*OWN_QUEUES, *self.topology.names, *(rung.name for rung in self.topology.rungs)}
        return queue.startswith(self.namespace) and (name in own or name.startswith((LISTENER, "work.")))

    async def declare(self, connection: AmqpConnection) -> None:
        """Raises TopologyConflict, ChannelLost, TimeoutError."""
        channel = await open_channel(connection)
        try:
            await self._declare_exchanges(channel)
            for queue in self.topology.queues:
                channel = await self._declare_queue(connection, channel, queue)
            await self._declare_broadcast(channel)
            for rung in self.topology.rungs:
                channel = await self._declare_rung(connection, channel, rung)
        except ChannelLost as error:
            raise _conflict(error) if error.code == PRECONDITION_FAILED else error from None
        channel.close()

    async def require(self, connection: AmqpConnection) -> None:
        """Check that the queues were declared, for users that may not declare them. Raises BusError, TimeoutError.

        A queue that expires is the user's own, and is declared.
        """
        channel = await open_channel(connection)
        try:
            for name in (EXCHANGE, BROADCAST_EXCHANGE, *(rung.name for rung in self.topology.rungs)):
                await channel.call(channel.raw.exchange_declare, exchange=self.wire(name), passive=True)
            for queue in self.topology.queues:
                if queue.expires_ms is not None:
                    name, arguments = self.wire(queue.name), self._prefix_arguments(queue.arguments)
                    await channel.call(channel.raw.queue_declare, queue=name, durable=True, arguments=arguments)
        except ChannelLost as error:
            raise _missing(error) if error.code == NOT_FOUND else error from None
        channel.close()

    async def _declare_exchanges(self, channel: AmqpChannel) -> None:
        for name in (UNROUTABLE_EXCHANGE, DEAD_EXCHANGE):
            await channel.call(
                channel.raw.exchange_declare, exchange=self.wire(name), exchange_type="fanout", durable=True
            )
        await channel.call(
            channel.raw.exchange_declare,
            exchange=self.exchange,
            exchange_type="topic",
            durable=True,
            arguments={"alternate-exchange": self.wire(UNROUTABLE_EXCHANGE)},
        )

    async def _declare_broadcast(self, channel: AmqpChannel) -> None:
        exchange, rewards = self.wire(BROADCAST_EXCHANGE), self.wire(REWARDS)
        await channel.call(channel.raw.exchange_declare, exchange=exchange, exchange_type="topic", durable=True)
        await channel.call(channel.raw.exchange_bind, destination=exchange, source=self.exchange, routing_key=rewards)

    async def _declare_queue(self, connection: AmqpConnection, channel: AmqpChannel, queue: Queue) -> AmqpChannel:
        name = self.wire(queue.name)
        channel = await self._declare_bounded(connection, channel, name, self._prefix_arguments(queue.arguments))
        await channel.call(channel.raw.queue_bind, queue=name, exchange=self.exchange, routing_key=name)
        if queue.name == KEPT_RESPONSES:
            copied = self.wire(RESPONSES)
            await channel.call(channel.raw.queue_bind, queue=name, exchange=self.exchange, routing_key=copied)
        for fanout, target in ((DEAD_EXCHANGE, DEAD_LETTERS), (UNROUTABLE_EXCHANGE, UNROUTABLE)):
            if queue.name == target:
                await channel.call(channel.raw.queue_bind, queue=name, exchange=self.wire(fanout))
        return channel

    async def _declare_rung(self, connection: AmqpConnection, channel: AmqpChannel, rung: Rung) -> AmqpChannel:
        name = self.wire(rung.name)
        await channel.call(channel.raw.exchange_declare, exchange=name, exchange_type="topic", durable=True)
        channel = await self._declare_bounded(connection, channel, name, rung.arguments)
        await channel.call(channel.raw.queue_bind, queue=name, exchange=name, routing_key="#")
        return channel

    async def _declare_bounded(
        self, connection: AmqpConnection, channel: AmqpChannel, name: str, arguments: dict[str, Any]
    ) -> AmqpChannel:
        """Returns the channel to go on with: the broker closes one at each refusal. Raises ChannelLost."""
        before, found = {key: value for key, value in arguments.items() if key != MAX_BYTES}, None
        for candidate in (arguments, before):
            try:
                await channel.call(channel.raw.queue_declare, queue=name, durable=True, arguments=candidate)
                break
            except ChannelLost as error:
                if error.code != PRECONDITION_FAILED or MAX_BYTES not in str(error):
                    raise
                found = found or CURRENT.search(str(error))
                channel = await open_channel(connection)
        else:  # it has a bound, and another one
            await channel.call(channel.raw.queue_declare, queue=name, passive=True)
        if candidate is not arguments and name not in self._told:
            self._told.add(name)
            sentence = _other_bound(name, arguments[MAX_BYTES], int(found[1]) if found else None)
            _log.warning("other-bound", sentence, queue=name)
        return channel

    def _prefix_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The dead-letter exchange an argument names has the namespace too; the default one (empty) has no name."""
        target = arguments.get("x-dead-letter-exchange")
        return arguments | {"x-dead-letter-exchange": self.wire(target)} if target else arguments


def _other_bound(name: str, wanted: int, found: int | None) -> str:
    """The least of argument and policy holds, so a policy can't enlarge a queue. None: it has no bound."""
    policy = f"'^{re.escape(name)}$' '{{\"max-length-bytes\": {wanted}}}' --apply-to queues"
    remedy = f"rabbitmqctl set_policy '{name}' {policy}"
    if found is not None and found < wanted:
        remedy = f"drain it, rabbitmqctl delete_queue '{name}', and declare it again"
    return (
        f"{name} was declared before with {found or 'no'} bytes for its bound, not {wanted}, and is taken as it is; "
        f"the alert RatchetQueueNearlyFull takes {wanted} for it. To give it this bound: {remedy}"
    )


def _missing(error: ChannelLost) -> BusError:
    return BusError(
        f"the queues were not declared yet ({error}), and with RATCHET_DECLARE_TOPOLOGY=false a service waits for "
        "them: `ratchet broker setup` declares them"
    )


def _conflict(error: ChannelLost) -> TopologyConflict:
    return TopologyConflict(
        f"a queue or exchange was declared before with other arguments ({error}). Drain it, delete it "
        "(rabbitmqctl delete_queue NAME) and start again, or start with the arguments it was declared with"
    )
