"""A broker that others use too keeps nothing of a demo's fleet, and all of the others'."""

from __future__ import annotations

import pytest

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import fleet_topology
from services.cli.fleet.own_fleet import delete_queues
from services.cli.fleet.readiness import queue_depths

pytestmark = pytest.mark.broker
TOPOLOGY = fleet_topology(("small",))


async def declare(amqp_url: str, namespace: str) -> None:
    bus = RabbitBus(amqp_url, TOPOLOGY, name="test", namespace=namespace)
    await bus.start()
    await bus.stop(0)


def missing(amqp_url: str, namespace: str) -> set[bool]:
    with open_connection(amqp_url) as connection:
        return {depth.messages is None for depth in queue_depths(connection, TOPOLOGY, namespace)}


async def test_the_queues_of_one_namespace_go_and_the_others_stay(amqp_url: str, namespace: str) -> None:
    await declare(amqp_url, namespace)
    await declare(amqp_url, f"{namespace}demo.")

    delete_queues(amqp_url, f"{namespace}demo.", ("small",))

    assert missing(amqp_url, f"{namespace}demo.") == {True}
    assert missing(amqp_url, namespace) == {False}


def test_where_there_is_nothing_nothing_is_wrong(amqp_url: str, namespace: str) -> None:
    delete_queues(amqp_url, f"{namespace}never.", ("small",))
