"""The private broker of a fleet whose API asks for tokens: a real one, in a state folder that was open before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ratchet.bus.accounts import accounts
from ratchet.bus.topology import fleet_topology
from services.cli.fleet.local_broker import server_folder
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.plan import declare_queues, plan_fleet, private_users
from tests.private_broker import PrivateBroker

USERS = accounts(fleet_topology(("small",)), ("small",))


@contextmanager
def running(broker: PrivateBroker) -> Iterator[None]:
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        yield
    finally:
        broker.stop(node)


def publish(url: str, queue: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("ratchet", queue, b"{}", mandatory=True)
    connection.close()


@pytest.mark.skipif(server_folder() is None, reason="RabbitMQ is not installed")
@pytest.mark.timeout(300)
def test_guest_and_clients_can_publish_no_reward_any_more_and_guest_can_again_without_tokens(tmp_path: Path) -> None:
    opened = PrivateBroker.on_free_ports(tmp_path / "broker")
    guarded = replace(opened, accounts=USERS)
    planned = replace(plan_fleet(FleetOptions(), tmp_path, None, 0.0, USERS), broker=guarded)
    with running(opened):
        assert opened.answers()

    with running(guarded):
        declare_queues(planned, FleetOptions(), "", 30.0)
        publish(guarded.url_of("client"), "tasks")
        publish(guarded.url_of("scorer"), "rewards")
        with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
            publish(guarded.url_of("client"), "rewards")
        with pytest.raises(AMQPError):
            publish(opened.url, "rewards")

    with running(opened):
        publish(opened.url, "rewards")


def test_each_service_is_given_the_url_of_its_own_user(tmp_path: Path) -> None:
    options = FleetOptions(agents=("small",), replicas=2)
    planned = plan_fleet(options, tmp_path, None, 0.0, private_users(options, ""))
    assert planned.broker is not None
    planned.broker.prepare()

    urls = {program.name: program.environment["RATCHET_AMQP_URL"] for program in planned.services_with_urls}

    users = {name: url.removeprefix("amqp://").partition(":")[0] for name, url in urls.items()}
    agents = {"agent-small-1": "agent-small", "agent-small-2": "agent-small"}
    assert users == agents | {name: name for name in ("orchestrator", "scorer", "trainer")}
    assert "RATCHET_AMQP_URL" not in planned.environment
    assert planned.amqp_url.startswith("amqp://setup:")
