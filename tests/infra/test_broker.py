"""The broker's users: those of the fleet's own table, made from definitions that a real node takes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from infra.broker import CLIENT, users
from infra.settings import StackSettings
from ratchet.bus.accounts import definitions
from ratchet.bus.topology import EXCHANGE, KEPT_RESPONSES
from tests.private_broker import PrivateBroker

SETTINGS = StackSettings.model_validate(
    {
        "images": {"registry": "registry.example.com", "tag": "1"},
        "agents": [{"id": "small"}, {"id": "coder-2"}],
        "runner": {"programs": '[agents.small]\nprograms = ["shell"]'},
        "externalScorer": True,
        "clientNamespaces": ["apps"],
    }
)
PASSWORDS = {user: f"password-of-{user.name}" for user in users(SETTINGS)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    """A node that has imported the definitions."""
    path = tmp_path_factory.mktemp("definitions") / "definitions.json"
    path.write_text(json.dumps(definitions(PASSWORDS, "")))
    broker = PrivateBroker.on_free_ports(tmp_path_factory.mktemp("node"))
    node = broker.start()
    try:
        broker.wait_until_ready(node)
        broker.control("import_definitions", str(path))
        yield broker
    finally:
        broker.stop(node)


def connect(broker: PrivateBroker, name: str, password: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials(name, password)
    return pika.BlockingConnection(parameters)


@pytest.mark.broker
def test_a_node_takes_the_definitions(broker: PrivateBroker) -> None:
    for user, password in PASSWORDS.items():
        connect(broker, user.name, password).close()

    with pytest.raises((ProbableAuthenticationError, ProbableAccessDeniedError)):
        connect(broker, CLIENT, "guessed")


@pytest.mark.broker
def test_and_keeps_to_them(broker: PrivateBroker) -> None:
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
    broker: PrivateBroker,
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
