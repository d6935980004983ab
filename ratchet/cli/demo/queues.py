"""Take a fleet's queues and exchanges off a broker that others use too. The fleet must be down."""

from __future__ import annotations

from ratchet.bus.amqp.short_connection import connected
from ratchet.bus.topology import BROADCAST_EXCHANGE, DEAD_EXCHANGE, EXCHANGE, UNROUTABLE_EXCHANGE, fleet_topology


def delete_queues(amqp_url: str, namespace: str, agents: tuple[str, ...]) -> None:
    """With whatever is in them. Raises BusError."""
    topology = fleet_topology(agents, external_scorer=True)
    rungs = [rung.name for rung in topology.rungs]
    exchanges = (EXCHANGE, BROADCAST_EXCHANGE, DEAD_EXCHANGE, UNROUTABLE_EXCHANGE, *rungs)
    with connected(amqp_url) as connection:
        channel = connection.channel()
        for queue in (*topology.names, *rungs):
            channel.queue_delete(namespace + queue)
        for exchange in exchanges:
            channel.exchange_delete(namespace + exchange)
