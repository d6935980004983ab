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
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

PLAIN, WITH_HEADERS, TOO_LARGE = 1400, 590, 10
ARRIVE_S = 120.0

DeadLetter = tuple[bytes, pika.BasicProperties]


@contextmanager
def channel_to(fleet: Fleet) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(fleet.amqp_url))
    try:
        yield connection.channel()
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def only_its_own_letters(fleet: Fleet) -> None:
    """Other tests of this fleet leave some."""
    with channel_to(fleet) as channel:
        channel.queue_purge(fleet.namespace + "dead-letters")


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
    """The next `count` messages of a queue, acked."""
    found: list[DeadLetter] = []

    def all_there() -> bool:
        found.extend(taken_now(channel, queue, at_most=count - len(found)))
        return len(found) == count

    wait_until(all_there, f"{count} messages in {queue}", ARRIVE_S)
    return found


def taken_now(channel: BlockingChannel, queue: str, at_most: int = 10_000) -> list[DeadLetter]:
    """What lies in a queue, acked."""
    found: list[DeadLetter] = []
    while len(found) < at_most:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            break
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


NOT_TEXT = b"\xff\xfe"
ODD_PROPERTIES: dict[str, dict[str, Any]] = {
    "message_id that is not text": {"message_id": NOT_TEXT},
    "reply_to that is not text": {"reply_to": NOT_TEXT},
    "reply_to of nobody": {"reply_to": "nobody", "correlation_id": NOT_TEXT},
    "content_type that is not text": {"content_type": NOT_TEXT, "app_id": NOT_TEXT},
    "header that is not text": {"headers": {NOT_TEXT: NOT_TEXT, "traceparent": NOT_TEXT}},
    "priority and expiration": {"priority": 255, "expiration": "600000"},
    "time out of range": {"timestamp": 2**63 - 1},
    "as long as can be": {"message_id": "m" * 255, "correlation_id": "c" * 255, "reply_to": "r" * 255},
    "large headers": {"headers": {"x": "y" * 100_000}},
    "tried often": {"headers": {"x-ratchet-attempt": 7}},
}


def test_odd_properties_neither_stop_a_service_nor_lose_a_task(fleet: Fleet) -> None:
    # given a good and a bad task with each
    task_ids = {name: f"odd: {name}" for name in ODD_PROPERTIES}
    good = {name: {"task_id": task_ids[name], "input": name, "metadata": {}} for name in ODD_PROPERTIES}
    pids = fleet.pids
    with channel_to(fleet) as channel:
        # when
        for name, odd in ODD_PROPERTIES.items():
            for body in (json.dumps(good[name]).encode(), f"bad: {name}".encode()):
                channel.basic_publish("", fleet.namespace + "tasks", body, pika.BasicProperties(**odd))
        letters = taken(channel, fleet.namespace + "dead-letters", len(ODD_PROPERTIES))
        results = answers(channel, fleet, set(task_ids.values()))

    # then
    assert {body.decode() for body, _ in letters} == {f"bad: {name}" for name in ODD_PROPERTIES}
    assert {result["status"] for result in results.values()} == {"ok"}
    assert {member.pid: member.exit_code for member in fleet} == dict.fromkeys(pids.values())


def test_a_bad_task_with_copies_to_the_queue_it_came_from_is_not_copied_again(fleet: Fleet) -> None:
    tasks = fleet.namespace + "tasks"
    with channel_to(fleet) as channel:
        channel.basic_publish("", tasks, b"a bad copy", pika.BasicProperties(headers={"CC": [tasks + ".gone"]}))
        channel.basic_publish("", tasks + ".gone", b"not routed", pika.BasicProperties(headers={"CC": [tasks]}))
        letters = taken(channel, fleet.namespace + "dead-letters", 2)
        time.sleep(0.5)  # real time: nothing more should come
        more = taken_now(channel, fleet.namespace + "dead-letters")

    assert sorted(body for body, _ in letters) == [b"a bad copy", b"not routed"]
    assert more == []


def test_a_task_id_as_long_as_allowed_in_any_script_is_answered(fleet: Fleet) -> None:
    task_id = "任" * 200
    with channel_to(fleet) as channel:
        task = {"task_id": task_id, "input": "long", "metadata": {}}
        channel.basic_publish("", fleet.namespace + "tasks", json.dumps(task, ensure_ascii=False).encode())
        result = answers(channel, fleet, {task_id})[task_id]
    assert result["response"] == "long"


def answers(channel: BlockingChannel, fleet: Fleet, task_ids: set[str]) -> dict[str, Any]:
    """The Results of these tasks, from `results`; those of others are taken and dropped."""
    found: dict[str, Any] = {}

    def all_there() -> bool:
        results = (json.loads(body) for body, _ in taken_now(channel, fleet.namespace + "results"))
        found.update((result["task_id"], result) for result in results if result["task_id"] in task_ids)
        return task_ids == set(found)

    wait_until(all_there, "the results", ARRIVE_S)
    return found


def answer_to_a_good_task(channel: BlockingChannel, fleet: Fleet, replies: str) -> Any:
    task = {"task_id": "good-after-bad", "input": "still there?", "metadata": {}, "reference": "still there?"}
    properties = pika.BasicProperties(reply_to=replies)
    channel.basic_publish("", fleet.namespace + "tasks", json.dumps(task).encode(), properties)
    ((body, _),) = taken(channel, replies, 1)
    return json.loads(body)
