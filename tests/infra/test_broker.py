"""The broker's users: made from the definitions, and able to do what they are for and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from infra.broker import CLIENT, SCALER, USERS, definitions, password_hash
from services.cli.broker import LocalBroker

PASSWORDS = {user.name: f"password-of-{user.name}" for user in USERS}


def test_a_password_is_hashed_as_the_broker_hashes_it() -> None:
    """The example of RabbitMQ's documentation on passwords."""
    assert password_hash("test12", bytes.fromhex("908DC60A")) == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_no_password_stands_in_the_definitions() -> None:
    document = definitions(PASSWORDS)

    assert [password for password in PASSWORDS.values() if password in document] == []
    assert {user["name"] for user in json.loads(document)["users"]} == set(PASSWORDS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A node that has imported the definitions."""
    folder = tmp_path_factory.mktemp("definitions")
    path = folder / "definitions.json"
    path.write_text(definitions(PASSWORDS))
    node_folder: Path = tmp_path_factory.mktemp("node")
    broker = LocalBroker.on_free_ports(node_folder)
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        broker.control("import_definitions", str(path))
        yield broker
    finally:
        broker.stop(node)


def connect(broker: LocalBroker, user: str, password: str | None = None) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials(user, password or PASSWORDS[user])
    return pika.BlockingConnection(parameters)


@pytest.mark.broker
def test_every_user_gets_in_with_its_password_only(broker: LocalBroker) -> None:
    for user in USERS:
        connect(broker, user.name).close()

    with pytest.raises((ProbableAuthenticationError, ProbableAccessDeniedError)):
        connect(broker, CLIENT, "guessed")


@pytest.mark.broker
@pytest.mark.parametrize("user", [CLIENT, SCALER])
def test_who_is_not_a_service_can_neither_read_tasks_nor_make_queues(broker: LocalBroker, user: str) -> None:
    owner = connect(broker, "orchestrator")
    owner.channel().queue_declare("tasks", durable=True)

    for attempt in (
        lambda channel: channel.basic_get("tasks"),
        lambda channel: channel.queue_purge("tasks"),
        lambda channel: channel.queue_declare("mine", durable=True),
    ):
        connection = connect(broker, user)
        with pytest.raises(ChannelClosedByBroker, match=r"403|ACCESS_REFUSED"):
            attempt(connection.channel())
        connection.close()
    owner.close()


@pytest.mark.broker
def test_a_client_publishes_tasks_and_reads_the_answers(broker: LocalBroker) -> None:
    owner = connect(broker, "orchestrator")
    channel = owner.channel()
    channel.exchange_declare("ratchet", "topic", durable=True)
    for queue in ("tasks", "results"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "ratchet", queue)
    client = connect(broker, CLIENT)
    asking = client.channel()
    asking.confirm_delivery()

    own = asking.queue_declare("", exclusive=True).method.queue
    asking.basic_publish("ratchet", "tasks", b"a task", mandatory=True)
    channel.basic_publish("ratchet", "results", b"an answer")
    channel.basic_publish("", own, b"a reply")

    assert next(asking.consume("results", inactivity_timeout=5))[2] == b"an answer"
    asking.cancel()
    assert next(asking.consume(own, inactivity_timeout=5))[2] == b"a reply"
    client.close()
    owner.close()
