"""Every user of the broker tries everything on a real node: what it needs works, all else is refused.

What each may do is written out by hand here, apart from the rules in ratchet/bus/accounts.py.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

from ratchet.bus.accounts import accounts, declare
from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import SENT_BY
from ratchet.bus.topology import Topology, fleet_topology, topology_of
from ratchet.service.errors import Retry
from ratchet.service.settings import FleetSettings
from services.cli.doctor import broker_checks
from services.cli.fleet.credentials import DEFINITIONS, SECRET, write_credentials
from tests.private_broker import PrivateBroker
from tests.waiting import until

pytestmark = pytest.mark.broker

AGENTS = ("small", "other")
ACCESS_REFUSED = 403

PUBLISHES = {
    "orchestrator": {
        "work.small", "work.small.high", "work.other", "work.other.high", "responses", "results", "training",
        "dead-letters",
    },
    "agent-small": {"responses", "responses.draft", "adapters.reports", "dead-letters"},
    "agent-other": {"responses", "responses.draft", "adapters.reports", "dead-letters"},
    "scorer": {"responses.draft", "rewards", "dead-letters"},
    "trainer": {"adapters", "dead-letters"},
    "client": {"tasks", "feedback"},
    "client-acme": {"tasks", "feedback"},
    "manager": {"tasks", "feedback", "training"},
    "operator": {"training"},
}  # fmt: skip
READS = {
    "orchestrator": {"tasks", "responses.draft", "rewards", "feedback", "adapters", "adapters.reports", "dead-letters"},
    "agent-small": {"work.small", "work.small.high"},
    "agent-other": {"work.other", "work.other.high"},
    "scorer": {"responses"},
    "trainer": {"training"},
    "client": {"results"},
    "client-acme": set[str](),
    "manager": set[str](),
    "operator": {"dead-letters", "unroutable"},
}
BROADCASTS = {"orchestrator": {"events.small", "events.other", "cancelled.small", "cancelled.other"}}
HEARS = {
    "agent-small": {"events.small", "cancelled.small", "rewards"},
    "agent-other": {"events.other", "cancelled.other", "rewards"},
}
RETRIES = {
    name: READS[name] - {"dead-letters"} for name in ("orchestrator", "agent-small", "agent-other", "scorer", "trainer")
}
WRITES_ANYWHERE = {"orchestrator", "operator"}

NAMES = sorted(PUBLISHES)
TOPOLOGY: Topology = fleet_topology(AGENTS)
TOPICS = ("events.small", "events.other", "cancelled.small", "cancelled.other", "rewards")


class Node:
    """A broker with the users, the queues declared by the user `setup`, and a connection of each user."""

    def __init__(self, broker: PrivateBroker, credentials: Path) -> None:
        self.broker = broker
        self.credentials = credentials
        self._connections: dict[str, BlockingConnection] = {}

    def url(self, account: str) -> str:
        return (self.credentials / account / SECRET).read_text()

    def refuses(self, account: str, act: Callable[[BlockingChannel], object]) -> bool:
        """Whether the broker closed the channel for want of permission; any other error is raised."""
        connection = self._connections.setdefault(account, BlockingConnection(pika.URLParameters(self.url(account))))
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            act(channel)
        except ChannelClosedByBroker as error:
            if error.reply_code != ACCESS_REFUSED:
                raise
            return True
        channel.close()
        return False

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


async def declared(settings: FleetSettings) -> None:
    """Declare the queues of a fleet with these settings, as `ratchet broker setup` does."""
    await declare(settings.amqp_url.get_secret_value(), topology_of(settings), settings.namespace, 60.0)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    credentials = tmp_path_factory.mktemp("credentials")
    broker = PrivateBroker.on_free_ports(tmp_path_factory.mktemp("rabbitmq"))
    write_credentials(credentials, accounts(TOPOLOGY, AGENTS, tenants=("acme",)), host="127.0.0.1", port=broker.port)
    process = broker.start()
    node = Node(broker, credentials)
    try:
        broker.wait_until_ready(process)
        broker.control("import_definitions", str(credentials / DEFINITIONS))
        asyncio.run(declared(FleetSettings.read(amqp_url=node.url("setup"), agents=AGENTS)))
        yield node
    finally:
        node.close()
        broker.stop(process)


def published(exchange: str, key: str) -> Callable[[BlockingChannel], object]:
    return lambda channel: channel.basic_publish(exchange, key, b"{}")


def allowed(node: Node, account: str, acts: dict[str, Callable[[BlockingChannel], object]]) -> set[str]:
    return {name for name, act in acts.items() if not node.refuses(account, act)}


@pytest.mark.parametrize("account", NAMES)
def test_a_user_publishes_only_to_the_queues_it_produces_for(node: Node, account: str) -> None:
    acts = {queue: published("ratchet", queue) for queue in TOPOLOGY.names}

    assert allowed(node, account, acts) == PUBLISHES[account]


@pytest.mark.parametrize("account", NAMES)
def test_a_user_reads_only_the_queues_it_consumes(node: Node, account: str) -> None:
    queues = (*TOPOLOGY.names, *(rung.name for rung in TOPOLOGY.rungs))
    acts = {queue: lambda channel, queue=queue: channel.basic_consume(queue, lambda *_: None) for queue in queues}

    assert allowed(node, account, acts) == READS[account]


@pytest.mark.parametrize("account", NAMES)
def test_a_user_empties_no_queue_but_its_own(node: Node, account: str) -> None:
    acts = {queue: lambda channel, queue=queue: channel.queue_purge(queue) for queue in TOPOLOGY.names}

    assert allowed(node, account, acts) == READS[account]


@pytest.mark.parametrize("account", NAMES)
def test_only_the_orchestrator_broadcasts_and_only_events(node: Node, account: str) -> None:
    acts = {topic: published("ratchet.broadcast", topic) for topic in TOPICS}

    assert allowed(node, account, acts) == BROADCASTS.get(account, set())


@pytest.mark.parametrize("account", NAMES)
def test_a_user_sends_up_the_ladder_only_what_comes_back_to_itself(node: Node, account: str) -> None:
    pairs = itertools.product((rung.name for rung in TOPOLOGY.rungs), TOPOLOGY.names)
    acts = {f"{rung} {queue}": published(rung, queue) for rung, queue in pairs}

    expected = {f"{rung.name} {queue}" for rung in TOPOLOGY.rungs for queue in RETRIES.get(account, ())}
    assert allowed(node, account, acts) == expected


@pytest.mark.parametrize("account", NAMES)
def test_queues_by_name_and_the_brokers_own_exchanges_are_closed(node: Node, account: str) -> None:
    acts = {
        exchange: published(exchange, "tasks") for exchange in ("", "ratchet.dead", "ratchet.unroutable", "amq.topic")
    }

    assert allowed(node, account, acts) == ({""} if account in WRITES_ANYWHERE else set())


@pytest.mark.parametrize("account", NAMES)
def test_nobody_declares_binds_or_deletes(node: Node, account: str) -> None:
    acts: dict[str, Callable[[BlockingChannel], object]] = {
        "declare a queue": lambda channel: channel.queue_declare("mine"),
        "declare an exchange": lambda channel: channel.exchange_declare("mine"),
        "delete a queue": lambda channel: channel.queue_delete("tasks"),
        "delete an exchange": lambda channel: channel.exchange_delete("ratchet"),
        "tap an exchange": lambda channel: channel.queue_bind("results", "ratchet", "#"),
        "untap an exchange": lambda channel: channel.queue_unbind("tasks", "ratchet", "tasks"),
        "chain exchanges": lambda channel: channel.exchange_bind("ratchet.broadcast", "ratchet", "#"),
    }

    assert allowed(node, account, acts) == set()


@pytest.mark.parametrize("account", NAMES)
def test_an_agent_hears_its_own_events_and_the_rewards_and_nobody_else_hears_anything(node: Node, account: str) -> None:
    def listen(channel: BlockingChannel, topic: str, exchange: str = "ratchet.broadcast") -> None:
        queue = f"ratchet.listener.{uuid.uuid4().hex}"
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, exchange, topic)

    acts: dict[str, Callable[[BlockingChannel], object]] = {
        topic: lambda channel, topic=topic: listen(channel, topic) for topic in (*TOPICS, "#", "events.*")
    }
    acts["all that is published"] = lambda channel: listen(channel, "#", "ratchet")

    assert allowed(node, account, acts) == HEARS.get(account, set())


def test_a_tenant_can_name_no_other_user_as_the_publisher_and_nobody_else_can_name_it(node: Node) -> None:
    def publish_as(account: str, user_id: str) -> None:
        connection = BlockingConnection(pika.URLParameters(node.url(account)))
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(user_id=user_id)
        try:
            channel.basic_publish("ratchet", "tasks", b"{}", properties)
        finally:
            connection.close()

    publish_as("client-acme", "client-acme")
    for account, user_id in (
        ("client-acme", "client"), ("client", "client-acme"), ("operator", "client-acme"), ("client", "manager"),
    ):  # fmt: skip
        with pytest.raises(ChannelClosedByBroker):
            publish_as(account, user_id)


def test_a_client_has_queues_of_its_own_for_its_answers(node: Node) -> None:
    def await_answers(channel: BlockingChannel, queue: str) -> None:
        name = channel.queue_declare(queue, exclusive=True).method.queue
        channel.basic_get(name)

    acts = {queue or "named by the broker": lambda channel, queue=queue: await_answers(channel, queue)
            for queue in ("", f"reply.{uuid.uuid4().hex}", "mine", "ratchet.listener.x")}  # fmt: skip

    assert {name.partition(".")[0] for name in allowed(node, "client", acts)} == {"named by the broker", "reply"}


def test_two_fleets_on_one_broker_keep_their_users(node: Node, tmp_path: Path) -> None:
    # given a second fleet, whose users are imported after those of the first
    fleet = accounts(TOPOLOGY, AGENTS, "blue.")
    write_credentials(tmp_path, fleet, host="127.0.0.1", port=node.broker.port, namespace="blue.")
    node.broker.control("import_definitions", str(tmp_path / DEFINITIONS))
    second = Node(node.broker, tmp_path)
    asyncio.run(declared(FleetSettings.read(amqp_url=second.url("setup"), agents=AGENTS, namespace="blue.")))

    def reads(queue: str) -> Callable[[BlockingChannel], object]:
        return lambda channel: channel.basic_get(channel.queue_declare(queue, exclusive=True).method.queue)

    # when both are used
    acts = {queue or "named by the broker": reads(queue) for queue in ("", "blue.reply.x", "reply.y")}
    own_tasks, others_tasks = published("blue.ratchet", "blue.tasks"), published("ratchet", "tasks")

    # then the first one's still work, and a client of the second has the queues that docs/docker.md promises
    fresh = Node(node.broker, node.credentials)
    assert not fresh.refuses("client", others_tasks)
    assert allowed(second, "client", acts) == {"named by the broker", "blue.reply.x"}
    assert not second.refuses("client", own_tasks)
    assert second.refuses("client", others_tasks)
    for one in (fresh, second):
        one.close()


@pytest.mark.parametrize("account", NAMES)
def test_another_users_password_opens_nothing(node: Node, account: str) -> None:
    given = pika.URLParameters(node.url(account))
    other = pika.URLParameters(node.url("scorer" if account != "scorer" else "trainer"))
    given.credentials = pika.PlainCredentials(given.credentials.username, other.credentials.password)

    with pytest.raises(ProbableAuthenticationError):
        BlockingConnection(given)


async def test_a_service_works_as_its_user_the_retry_ladder_included(node: Node) -> None:
    topology = fleet_topology(AGENTS)
    agent = RabbitBus(node.url("agent-small"), topology, name="agent", declare=False)
    orchestrator = RabbitBus(node.url("orchestrator"), topology, name="orchestrator", declare=False)
    attempts: list[int] = []
    heard: list[bytes] = []

    async def fail_once(delivery: Delivery) -> None:
        if delivery.message_id != "w":  # of another test
            return
        attempts.append(delivery.attempt)
        if delivery.attempt == 0:
            raise Retry("not yet")
        await agent.publish("responses", delivery.body, type="response.v1", message_id="m")

    await agent.start()
    await orchestrator.start()
    await agent.listen("events.small", lambda delivery: heard.append(delivery.body))
    await agent.consume("work.small", fail_once, prefetch=4)

    await orchestrator.broadcast("events.small", b"news", type="adapter_event.v1", message_id="e")
    await orchestrator.publish("work.small", b"{}", type="work.v1", message_id="w")
    await until(lambda: attempts == [0, 1], "the message came back from the first rung, 5 s long")

    await until(lambda: heard == [b"news"], "the broadcast is heard")
    assert agent.trouble() is None
    assert await agent.stop(5.0)
    await orchestrator.stop(5.0)


async def test_a_retry_says_who_published_it_and_the_broker_checked_who_says_so(node: Node) -> None:
    orchestrator = RabbitBus(node.url("orchestrator"), fleet_topology(AGENTS), name="orchestrator", declare=False)
    given = pika.URLParameters(node.url("client"))
    sent = BasicProperties(message_id="vouched", user_id=given.credentials.username)
    publishers: list[tuple[str | None, object]] = []

    async def fail_once(delivery: Delivery) -> None:
        if delivery.message_id == "vouched":
            publishers.append((delivery.user_id, delivery.headers.get(SENT_BY)))
            if delivery.attempt == 0:
                raise Retry("not yet")

    await orchestrator.start()
    await orchestrator.consume("tasks", fail_once, prefetch=4)
    with closing(BlockingConnection(given)) as connection:
        connection.channel().basic_publish("ratchet", "tasks", b"{}", sent)
    own = pika.URLParameters(node.url("orchestrator")).credentials.username
    await until(lambda: len(publishers) == 2, "the message came back from the first rung, 5 s long")

    assert publishers == [(given.credentials.username, None), (own, given.credentials.username)]
    await orchestrator.stop(5.0)


async def test_a_service_that_may_not_declare_waits_for_the_set_up(node: Node) -> None:
    namespace = f"late{uuid.uuid4().hex[:6]}."
    settings = FleetSettings.read(amqp_url=node.broker.url, namespace=namespace, declare_topology=False)
    bus = RabbitBus.from_settings(settings, name="early")
    starting = asyncio.create_task(bus.start())
    await until(lambda: "ratchet broker setup" in (bus.trouble() or ""), "it says what it waits for")
    assert not starting.done()

    await declared(settings)

    await asyncio.wait_for(starting, 30.0)
    assert bus.trouble() is None
    await bus.stop(1.0)


def test_the_doctor_does_not_take_a_users_limits_for_a_broken_broker(node: Node) -> None:
    checks = {check.name: check for check in broker_checks(node.url("operator"), "", TOPOLOGY, expected=True)}

    assert checks["broker"].level == "ok"
    assert (checks["queues"].level, checks["queues"].fix) == ("warn", "ratchet status")


PAGE = Path(__file__).parents[3] / "docs" / "docker.md"


@pytest.mark.parametrize("account", sorted({"orchestrator", "agent-small", "scorer", "trainer", "client", "operator"}))
def test_the_table_in_the_docs_says_who_may_do_what(account: str) -> None:
    row = next(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| `{account}` |"))
    _, _, publishes, reads, *_ = row.split("|")

    work = {queue for queue in PUBLISHES[account] if queue.startswith("work.")}
    assert set(re.findall(r"`([a-z.-]+)`", publishes)) == PUBLISHES[account] - work
    assert set(re.findall(r"`([a-z.-]+)`", reads)) == READS[account]
