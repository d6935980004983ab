"""Feedback from the command line lies in the fleet's queue when the command returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest

from ratchet.bus.topology import EXCHANGE, FEEDBACK, fleet_topology
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS, START_OFFSETS
from ratchet.service.errors import FleetError, NotFound
from schemas.messages.feedback import Feedback
from services.cli.feedback import is_known, new_feedback, publish_feedback
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import FleetOptions
from services.cli.terminal import UsageError
from tests.services.cli.result.test_logged_task import sample, write
from tests.services.cli.started import started


def access(amqp_url: str, namespace: str) -> FleetAccess:
    return FleetAccess(amqp_url, namespace, ("small",), fleet_topology(("small",)), Path("logs"), None)


def test_what_is_typed_becomes_feedback_with_an_id_of_its_own() -> None:
    given = new_feedback({"task_id": "t1", "score": 0.5, "sample": None, "reason": "so so", "feedback_id": None})

    assert (given.task_id, given.score, given.sample, given.reason) == ("t1", 0.5, None, "so so")
    assert given.feedback_id != new_feedback({"task_id": "t1", "score": 0.5}).feedback_id


def test_what_can_not_be_is_named() -> None:
    with pytest.raises(UsageError, match="task_id"):
        new_feedback({"task_id": "a\nb", "score": 1})


def test_a_task_that_the_log_at_hand_does_not_know_is_refused(tmp_path: Path) -> None:
    def known(task_id: str, sample: int | None = None, **changed: Any) -> bool:
        record = started(FleetOptions(), {})
        here = replace(access(record.amqp_url, record.namespace), logs_dir=tmp_path, record=record)
        return is_known(replace(here, **changed), new_feedback({"task_id": task_id, "score": 1, "sample": sample}))

    write(tmp_path, ASSIGNMENTS, [{"task_id": "open", "input": "x"}])
    write(tmp_path, INTERACTIONS, [sample("mine", number, 0.5) for number in range(2)])

    assert known("mine")
    assert known("mine", 1)
    assert not known("open"), "it may yet end without an answer"
    for unknown, number in (("mine-99", None), ("mine", 2)):
        with pytest.raises(NotFound):
            known(unknown, number)
        assert not known(unknown, number, amqp_url="amqp://elsewhere")
        assert not known(unknown, number, record=None)
    (tmp_path / START_OFFSETS).write_text("{}")
    assert not known("mine-99"), "it may have been answered and removed"


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
    with pytest.raises(FleetError, match="ratchet up"):
        publish_feedback(access(amqp_url, namespace), new_feedback({"task_id": "t1", "score": 1.0}))
