"""Feedback from the command line lies in the fleet's queue when the command returns."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from ratchet.bus.topology import EXCHANGE, FEEDBACK, fleet_topology
from ratchet.cli.feedback import new_feedback, publish_feedback
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.terminal import CommandError, UsageError
from schemas.messages.feedback import Feedback


def access(amqp_url: str, namespace: str) -> FleetAccess:
    return FleetAccess(amqp_url, namespace, ("small",), fleet_topology(("small",)), Path("logs"), None)


def test_what_is_typed_becomes_feedback_with_an_id_of_its_own() -> None:
    given = new_feedback({"task_id": "t1", "score": 0.5, "sample": None, "reason": "so so", "feedback_id": None})

    assert (given.task_id, given.score, given.sample, given.reason) == ("t1", 0.5, None, "so so")
    assert given.feedback_id != new_feedback({"task_id": "t1", "score": 0.5}).feedback_id


def test_what_can_not_be_is_named() -> None:
    with pytest.raises(UsageError, match="task_id"):
        new_feedback({"task_id": "a\nb", "score": 1})


@pytest.mark.broker
def test_it_lies_in_the_queue_when_the_command_returns(amqp_url: str, namespace: str) -> None:
    given = new_feedback({"task_id": "t1", "score": 1.0})
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.exchange_declare(namespace + EXCHANGE, "topic", durable=True)
    channel.queue_declare(namespace + FEEDBACK, durable=True)
    channel.queue_bind(namespace + FEEDBACK, namespace + EXCHANGE, namespace + FEEDBACK)

    publish_feedback(access(amqp_url, namespace), given)

    _, properties, body = channel.basic_get(namespace + FEEDBACK)
    assert properties is not None and properties.type == "feedback.v1"
    assert Feedback.decode(body or b"") == given
    channel.queue_delete(namespace + FEEDBACK)
    channel.exchange_delete(namespace + EXCHANGE)
    connection.close()


@pytest.mark.broker
def test_where_no_fleet_ever_was_it_says_so(amqp_url: str, namespace: str) -> None:
    with pytest.raises(CommandError, match="ratchet up"):
        publish_feedback(access(amqp_url, namespace), new_feedback({"task_id": "t1", "score": 1.0}))
