"""Two thousand bad messages: no service stops, each lies whole in `dead-letters` with a reason that names its fault."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.acceptance.bad_messages import BadMessage, bad_headers, drawn, kinds, too_large
from tests.acceptance.fleet import Fleet

pytestmark = pytest.mark.broker

PLAIN, WITH_HEADERS, TOO_LARGE = 1400, 590, 10
ARRIVE_S = 60.0

DeadLetter = tuple[bytes, pika.BasicProperties]


@contextmanager
def channel_to(fleet: Fleet) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(fleet.amqp_url))
    try:
        yield connection.channel()
    finally:
        connection.close()


def publish(channel: BlockingChannel, fleet: Fleet, messages: Sequence[BadMessage], reply_to: str) -> None:
    """Each under its number, as `message_id` and as `correlation_id`."""
    for number, bad in enumerate(messages):
        properties = pika.BasicProperties(
            message_id=str(number),
            correlation_id=str(number),
            reply_to=reply_to,
            type=bad.type,
            headers=bad.headers,
            delivery_mode=2,
        )
        channel.basic_publish("", fleet.namespace + bad.queue, bad.body, properties)


def taken(channel: BlockingChannel, queue: str, count: int) -> list[DeadLetter]:
    """The next `count` messages of a queue, acked; fewer if they do not come in time."""
    found: list[DeadLetter] = []
    deadline = time.monotonic() + ARRIVE_S
    while len(found) < count and time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            time.sleep(0.05)
        else:
            found.append((body, properties))
    return found


def by_number(messages: Sequence[DeadLetter]) -> dict[str, DeadLetter]:
    return {properties.message_id: (body, properties) for body, properties in messages}


def reason(letter: DeadLetter) -> Any:
    return letter[1].headers.get("x-ratchet-reason")


@pytest.mark.timeout(240)
def test_two_thousand_bad_messages_stop_nothing_and_are_all_kept_with_their_reasons(fleet: Fleet) -> None:
    # given
    bad = drawn(kinds, PLAIN) + drawn(bad_headers(kinds), WITH_HEADERS) + drawn(too_large(), TOO_LARGE)
    assert len(bad) == 2000
    pids = fleet.pids
    with channel_to(fleet) as channel:
        replies = channel.queue_declare("", exclusive=True).method.queue

        # when
        publish(channel, fleet, bad, replies)
        letters = by_number(taken(channel, fleet.namespace + "dead-letters", len(bad)))

        # then
        numbered = {str(number): one for number, one in enumerate(bad)}
        assert [one for number, one in numbered.items() if number not in letters] == []
        assert [one for number, one in numbered.items() if letters[number][0] != one.body] == []
        assert [
            (one.queue, one.body[:80], one.about, reason(letters[number]))
            for number, one in numbered.items()
            if not any(word in reason(letters[number]) for word in one.about)
        ] == []
        tasks = {number for number, one in numbered.items() if one.queue == "tasks"}
        results = {
            properties.correlation_id: json.loads(body) for body, properties in taken(channel, replies, len(tasks))
        }
        assert set(results) == tasks
        assert {result["status"] for result in results.values()} == {"failed"}
        assert [number for number in tasks if results[number]["reason"] != reason(letters[number])] == []
        assert fleet.pids == pids
        assert {member.name: member.exit_code for member in fleet} == dict.fromkeys(pids)
        assert {member.name: member.get("/healthz")[0] for member in fleet} == dict.fromkeys(pids, 200)
        assert answer_to_a_good_task(channel, fleet, replies)["response"] == "still there?"


def answer_to_a_good_task(channel: BlockingChannel, fleet: Fleet, replies: str) -> Any:
    task = {"task_id": "good-after-bad", "input": "still there?", "metadata": {}, "reference": "still there?"}
    properties = pika.BasicProperties(reply_to=replies)
    channel.basic_publish("", fleet.namespace + "tasks", json.dumps(task).encode(), properties)
    ((body, _),) = taken(channel, replies, 1)
    return json.loads(body)
