"""From one broker node to three, by the steps of docs/operations.md, while tasks are published: nothing is lost."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from tests.acceptance.ratchet_command import REPOSITORY, Ratchet
from tests.private_broker import PrivateBroker, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

COOKIE = "one cookie for the whole cluster".replace(" ", "-")
TASKS = 30


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[tuple[PrivateBroker, subprocess.Popen[bytes]]]]:
    """Three nodes that may know each other, and do not yet: they share a port mapper and a cookie."""
    mapper = free_port()
    started = []
    try:
        for number in range(3):
            broker = replace(PrivateBroker.on_free_ports(tmp_path / f"node-{number}"), mapper_port=mapper)
            broker.folder.mkdir()
            (broker.folder / ".erlang.cookie").write_text(COOKIE)
            (broker.folder / ".erlang.cookie").chmod(0o400)
            node = broker.start()
            started.append((broker, node))
            broker.wait_until_ready(node)
        yield started
    finally:
        for broker, node in started:
            if node.poll() is None:
                broker.kill(node)
        started[0][0].stop_port_mapper()


def grow(broker: PrivateBroker, node: str) -> None:
    """Run the command that the documents give: `rabbitmq-queues grow NODE all`."""
    steps = (REPOSITORY / "docs" / "operations.md").read_text()
    (words,) = re.findall(r"rabbitmq-queues (grow) rabbit@\S+ (all)$", steps, re.MULTILINE)[:1]
    program = Path(broker.command[0]).with_name("rabbitmq-queues")
    subprocess.run([program, words[0], node, words[1]], env=broker.environment, check=True, capture_output=True)


def members(broker: PrivateBroker) -> dict[str, int]:
    listed = broker.control("--quiet", "--formatter", "json", "list_queues", "name", "type", "members")
    return {one["name"]: len(one["members"]) for one in json.loads(listed) if one["type"] == "quorum"}


def publish(broker: PrivateBroker, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            channel.basic_publish("", "tasks", str(number).encode(), pika.BasicProperties(delivery_mode=2))


def depth(broker: PrivateBroker) -> int | None:
    """None while the queue's members choose another leader."""
    with suppress(AMQPError), pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        return int(connection.channel().queue_declare("tasks", passive=True).method.message_count)
    return None


def test_one_node_becomes_three_with_every_queue_on_each_and_loses_one_of_them(
    nodes: list[tuple[PrivateBroker, subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    (first, first_node), (second, _), (third, _) = nodes
    name = first.environment["RABBITMQ_NODENAME"]
    setup = Ratchet(tmp_path, {"RATCHET_AMQP_URL": first.url})("broker", "setup")
    assert setup.code == 0, setup.err
    publish(first, TASKS)
    assert set(members(first).values()) == {1}

    for broker in (second, third):  # on Kubernetes peer discovery does it, since `broker.nodes` is 3
        for step in (["stop_app"], ["reset"], ["join_cluster", name], ["start_app"]):
            broker.control(*step)
        grow(first, broker.environment["RABBITMQ_NODENAME"])
        publish(first, TASKS)

    wait_until(lambda: set(members(first).values()) == {3}, "every queue has three members")
    assert len(members(first)) > 5
    first.kill(first_node)
    wait_until(lambda: depth(second) == 3 * TASKS, "all tasks are there without the first node")
