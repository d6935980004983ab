"""A real RabbitMQ for the tests: RATCHET_AMQP_URL if set, else a private node, else a container.

Processes that run tests side by side share one node, each in a virtual host of its own.

Hypothesis draws the same examples each time, and times none; `--hypothesis-profile=default` draws others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest
from hypothesis import HealthCheck, settings

from ratchet.bus.topology import BROADCAST_EXCHANGE, DEAD_EXCHANGE, EXCHANGE, UNROUTABLE_EXCHANGE, fleet_topology
from services.cli.fleet.local_broker import server_folder
from tests import private_broker
from tests.passable import passable_folder
from tests.private_broker import PrivateBroker
from tests.quick import (
    MEMORY,
    has_room,
    leave_out_what_needs_much,
    pytest_addoption,
    pytest_collection_finish,
    pytest_configure,
    pytest_ignore_collect,
)
from tests.shared_broker import SharedBroker

__all__ = [
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_ignore_collect",
]

LONG = ("tests/services/trainer/run/",)
"""Slow folders, besides tests/acceptance, which comes first anyway."""

settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
"""The number of processes that run tests side by side; 0 in the one that hands out the tests, or runs them alone."""
NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % max(WORKERS, 1)
"""The number of this process; one that replaces a crashed one counts on."""
SHARED_PORTS = private_broker.PORTS[-100:]
"""Ports for the shared node alone."""


def _ports_of_this_worker() -> range:
    """Return ports that no other worker takes: all look for free ones at the same time, and listen later."""
    if not WORKERS:
        return private_broker.PORTS
    size = (len(private_broker.PORTS) - len(SHARED_PORTS)) // WORKERS
    return private_broker.PORTS[NUMBER * size : (NUMBER + 1) * size]


private_broker.PORTS = _ports_of_this_worker()
BROKER = "broker"
SHARED = pytest.StashKey[tuple[SharedBroker, subprocess.Popen[bytes]]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start the shared node before the first test process, so that it starts while they collect."""
    config: pytest.Config = node.config
    if os.environ.get("RATCHET_AMQP_URL") or not server_folder() or config.getoption("--quick"):
        return
    if SHARED not in config.stash:
        private_broker.PORTS = SHARED_PORTS
        folder = _folder_of_broker(config._tmp_path_factory)  # type: ignore[attr-defined]
        hosts = tuple(f"gw{number}" for number in range(len(node.nodemanager.specs)))
        broker = replace(SharedBroker.on_free_ports(folder), hosts=hosts)
        config.stash[SHARED] = broker, broker.start()
    broker, _ = config.stash[SHARED]
    ports = broker.port, broker.distribution_port, broker.mapper_port
    node.workerinput[BROKER] = str(broker.folder), ports, broker.hosts


def pytest_unconfigure(config: pytest.Config) -> None:
    if shared := config.stash.get(SHARED, None):
        broker, node = shared
        broker.stop(node)
        shutil.rmtree(broker.folder)


def _folder_of_broker(temporary: pytest.TempPathFactory) -> Path:
    """Return a folder, in memory if there is room: no test cuts the power of a shared broker."""
    return Path(tempfile.mkdtemp(prefix="ratchet-broker-", dir=MEMORY)) if has_room() else temporary.mktemp("rabbitmq")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with slow tests, so that no worker is left with one at the end."""
    leave_out_what_needs_much(config, items)
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that every user may pass."""
    with passable_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def amqp_url(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    if url := os.environ.get("RATCHET_AMQP_URL"):
        yield url
    elif found := getattr(pytestconfig, "workerinput", {}).get(BROKER):
        folder, ports, hosts = found
        broker = SharedBroker(Path(folder), *ports, hosts=tuple(hosts))
        broker.wait_until_ready(timeout_s=180)
        yield broker.url_in(hosts[NUMBER])
    elif server_folder():
        yield from _private_node(_folder_of_broker(tmp_path_factory))
    else:
        yield from _container()


def _private_node(folder: Path) -> Iterator[str]:
    broker = PrivateBroker.on_free_ports(folder)
    node = broker.start()
    try:
        broker.wait_until_ready(node, 180)
        yield broker.url
    finally:
        broker.stop(node)
        shutil.rmtree(folder)


def _container() -> Iterator[str]:
    from testcontainers.rabbitmq import RabbitMqContainer

    with RabbitMqContainer("rabbitmq:4-management") as container:
        yield f"amqp://guest:guest@{container.get_container_host_ip()}:{container.get_exposed_port(5672)}/%2F"


@pytest.fixture
def namespace(amqp_url: str) -> Iterator[str]:
    """A prefix of this test's own for every queue and exchange; what was declared under it is deleted afterwards."""
    prefix = f"t{uuid.uuid4().hex[:8]}."
    yield prefix
    topology = fleet_topology(("small", "echo"), external_scorer=True)
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    for name in (*topology.names, *(rung.name for rung in topology.rungs)):
        channel.queue_delete(prefix + name)
    for name in (
        EXCHANGE,
        BROADCAST_EXCHANGE,
        DEAD_EXCHANGE,
        UNROUTABLE_EXCHANGE,
        *(rung.name for rung in topology.rungs),
    ):
        channel.exchange_delete(prefix + name)
    connection.close()
