"""The broker's users: those of the fleet's own table, made from definitions that a real node takes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from infra.broker import definitions, password_hash
from infra.broker_users import CLIENT, SCALER, User, users
from ratchet.bus.topology import (
    BROADCAST_EXCHANGE,
    DEAD_EXCHANGE,
    EXCHANGE,
    KEPT_RESPONSES,
    LISTENER,
    UNROUTABLE_EXCHANGE,
    fleet_topology,
)
from services.cli.fleet.accounts import Account, accounts
from services.cli.fleet.local_broker import LocalBroker

AGENTS = ("small", "coder-2")
PASSWORDS = {user: f"password-of-{user.name}" for user in users(AGENTS, runner=True, external_scorer=True)}
TOPOLOGY = fleet_topology(AGENTS, auditor=True, external_scorer=True)
RUNGS = tuple(rung.name for rung in TOPOLOGY.rungs)
EXCHANGES = (EXCHANGE, BROADCAST_EXCHANGE, DEAD_EXCHANGE, UNROUTABLE_EXCHANGE, *RUNGS, "amq.default", "amq.topic")
NAMES = (
    *TOPOLOGY.names,
    *EXCHANGES,
    f"{LISTENER}1",
    "reply.1",
    "amq.gen-1",
    "tasks2",
    "other",
    "events.small",
    "rollouts",
)


def rights(user: User | Account) -> set[tuple[str, ...]]:
    """All that a user may do to whatever has a name, and with every routing key."""
    names = {
        (right, name)
        for right, name in itertools.product(("configure", "write", "read"), NAMES)
        if re.search(getattr(user, right), name)
    }
    keys = {
        (topic.exchange, right, key)
        for topic in user.topics
        for right, key in itertools.product(("write", "read"), (*NAMES, "events.coder-2"))
        if re.search(getattr(topic, right), key)
    }
    return names | keys


@pytest.mark.parametrize("auditor", [False, True])
@pytest.mark.parametrize("external_scorer", [False, True])
@pytest.mark.parametrize("runner", [False, True])
def test_each_user_may_what_the_fleet_says_and_only_the_scaler_is_more(
    auditor: bool, external_scorer: bool, runner: bool
) -> None:
    topology = fleet_topology(AGENTS, auditor=auditor, external_scorer=external_scorer)
    ours = {user.name: user for user in users(AGENTS, auditor=auditor, runner=runner, external_scorer=external_scorer)}
    fleet = {account.name: account for account in accounts(topology, AGENTS, runner=runner)}

    assert ours.keys() - fleet.keys() == {SCALER}
    assert {name: rights(ours[name]) for name in fleet} == {name: rights(account) for name, account in fleet.items()}
    assert {name: ours[name].tags for name in fleet} == {name: account.tags for name, account in fleet.items()}
    assert rights(ours[SCALER]) == set()


def test_every_topic_exchange_a_user_writes_to_has_its_keys_said() -> None:
    """RabbitMQ takes a missing pattern for leave to use any key."""
    silent = [
        (user.name, exchange)
        for user in users(AGENTS)
        if user.name != "setup"
        for exchange in (EXCHANGE, BROADCAST_EXCHANGE, *RUNGS)
        if re.search(user.write, exchange) and exchange not in {topic.exchange for topic in user.topics}
    ]

    assert silent == []


def test_a_password_is_hashed_as_the_broker_hashes_it() -> None:
    """The example of RabbitMQ's documentation on passwords."""
    assert password_hash("test12", bytes.fromhex("908DC60A")) == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_no_password_stands_in_the_definitions() -> None:
    document = definitions(PASSWORDS)

    assert [password for password in PASSWORDS.values() if password in document] == []
    assert {user["name"] for user in json.loads(document)["users"]} == {user.name for user in PASSWORDS}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A node that has imported the definitions."""
    path = tmp_path_factory.mktemp("definitions") / "definitions.json"
    path.write_text(definitions(PASSWORDS))
    broker = LocalBroker.on_free_ports(tmp_path_factory.mktemp("node"))
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        broker.control("import_definitions", str(path))
        yield broker
    finally:
        broker.stop(node)


def connect(broker: LocalBroker, name: str, password: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials(name, password)
    return pika.BlockingConnection(parameters)


@pytest.mark.broker
def test_a_node_takes_the_definitions(broker: LocalBroker) -> None:
    for user, password in PASSWORDS.items():
        connect(broker, user.name, password).close()

    with pytest.raises((ProbableAuthenticationError, ProbableAccessDeniedError)):
        connect(broker, CLIENT, "guessed")


@pytest.mark.broker
def test_and_keeps_to_them(broker: LocalBroker) -> None:
    (setup, client, scorer) = (
        connect(broker, user.name, PASSWORDS[user])
        for name in ("setup", CLIENT, "scorer")
        for user in PASSWORDS
        if user.name == name
    )
    declaring = setup.channel()
    declaring.exchange_declare(EXCHANGE, "topic", durable=True)
    declaring.queue_declare("tasks", durable=True)
    declaring.queue_bind("tasks", EXCHANGE, "tasks")
    asking = client.channel()
    asking.confirm_delivery()

    asking.basic_publish(EXCHANGE, "tasks", b"a task", mandatory=True)

    assert declaring.basic_get("tasks")[2] == b"a task"
    for attempt in (
        lambda: client.channel().basic_get("tasks"),
        lambda: client.channel().queue_declare("mine", durable=True),
        lambda: scorer.channel().queue_purge("tasks"),
    ):
        with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
            attempt()
    for connection in (setup, client, scorer):
        connection.close()


@pytest.mark.broker
def test_the_orchestrator_reads_the_copies_that_an_external_scorers_rewards_are_completed_with(
    broker: LocalBroker,
) -> None:
    by_name = {user.name: password for user, password in PASSWORDS.items()}
    setup, runner, orchestrator = (connect(broker, name, by_name[name]) for name in ("setup", "runner", "orchestrator"))
    declaring = setup.channel()
    declaring.exchange_declare(EXCHANGE, "topic", durable=True)
    declaring.queue_declare(KEPT_RESPONSES, durable=True)
    declaring.queue_bind(KEPT_RESPONSES, EXCHANGE, "responses")
    answering = runner.channel()
    answering.confirm_delivery()

    answering.basic_publish(EXCHANGE, "responses", b"an answer", mandatory=True)

    assert orchestrator.channel().basic_get(KEPT_RESPONSES)[2] == b"an answer"
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        runner.channel().basic_get(KEPT_RESPONSES)
    for connection in (setup, runner, orchestrator):
        connection.close()
