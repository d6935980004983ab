"""A running fleet for the tests that do not kill it: one for the whole session, with the echo engine and a verifier."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest

from ratchet.bus.topology import DEAD_EXCHANGE, EXCHANGE, UNROUTABLE_EXCHANGE, fleet_topology
from tests.acceptance.fleet import Fleet


@pytest.fixture(scope="session")
def fleet(amqp_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start the fleet that tests share: leave it as it was found."""
    with ExitStack() as stack:
        yield started(stack, amqp_url, tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def start_fleet(amqp_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Fleet]]:
    """Start fleets for one module: `start_fleet(agents=..., environment=...)`."""
    with ExitStack() as stack:
        yield lambda **options: started(stack, amqp_url, tmp_path_factory.mktemp("fleet"), **options)


def started(stack: ExitStack, amqp_url: str, folder: Path, **options: object) -> Fleet:
    """Start a fleet; it is stopped, and its queues deleted, when the stack unwinds."""
    fleet = Fleet(folder, amqp_url, namespace=f"f{uuid.uuid4().hex[:8]}.", forked=True, **options)  # type: ignore[arg-type]
    stack.callback(delete_queues, fleet)
    stack.callback(fleet.stop)
    return fleet.start()


def delete_queues(fleet: Fleet) -> None:
    topology = fleet_topology(fleet.agents, external_scorer=True, manager=True)
    rungs = [rung.name for rung in topology.rungs]
    connection = pika.BlockingConnection(pika.URLParameters(fleet.amqp_url))
    channel = connection.channel()
    for queue in (*topology.names, *rungs):
        channel.queue_delete(fleet.namespace + queue)
    for exchange in (EXCHANGE, DEAD_EXCHANGE, UNROUTABLE_EXCHANGE, *rungs):
        channel.exchange_delete(fleet.namespace + exchange)
    connection.close()
