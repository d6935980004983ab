"""The client against a real broker and a fleet of one thread that answers each task with its input."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from urllib.parse import urlsplit

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from ratchet.bus.amqp.short_connection import BrokerUnreachable
from ratchet.bus.topology import BROKER_DISK, EXCHANGE, TASKS, UNROUTABLE_EXCHANGE, fleet_topology
from ratchet.client import AsyncFleet, Fleet, Progress
from ratchet.service.errors import FleetError, TimedOut
from schemas.messages.result import Result
from schemas.messages.task import Task
from tests.tcp_proxy import proxy_to
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

Reply = Callable[[BlockingChannel, BasicProperties, Task], None]


def echo(channel: BlockingChannel, properties: BasicProperties, task: Task) -> None:
    result = Result(task_id=task.task_id, response=str(task.input), score=1.0).encode()
    sent = BasicProperties(correlation_id=properties.correlation_id, delivery_mode=2)
    channel.basic_publish("", str(properties.reply_to), result, sent)


@contextmanager
def fleet(url: str, namespace: str, reply: Reply = echo, disk: int = BROKER_DISK) -> Iterator[None]:
    """Consumes the tasks until the block ends."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    queue = namespace + TASKS
    arguments = fleet_topology(("small",), broker_disk=disk).queue(TASKS).arguments
    arguments |= {"x-dead-letter-exchange": namespace + "ratchet.dead"}
    channel.queue_declare(queue, durable=True, arguments=arguments)

    channel.exchange_declare(
        namespace + EXCHANGE, "topic", durable=True, arguments={"alternate-exchange": namespace + UNROUTABLE_EXCHANGE}
    )
    channel.queue_bind(queue, namespace + EXCHANGE, queue)

    def handle(channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        reply(channel, properties, Task.decode(body))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, handle)
    thread = Thread(target=channel.start_consuming)
    thread.start()
    try:
        yield
    finally:
        connection.add_callback_threadsafe(channel.stop_consuming)
        thread.join()
        connection.close()


def tasks(count: int) -> list[Task]:
    run = uuid.uuid4().hex[:6]
    return [Task(task_id=f"{run}-{number}", input=f"question {number}") for number in range(count)]


def test_every_task_gets_its_own_answer(amqp_url: str, namespace: str) -> None:
    asked = tasks(1000)

    with fleet(amqp_url, namespace), Fleet(amqp_url, namespace=namespace, stall_s=30, most_open=100) as client:
        results = {result.task_id: result.response for result in client.batch(asked)}

        assert results == {task.task_id: task.input for task in asked}
        assert client.open_tasks == ()
        assert client.progress == Progress(submitted=1000, answered=1000, failed=0)


async def test_the_asynchronous_client_does_the_same(amqp_url: str, namespace: str) -> None:
    with fleet(amqp_url, namespace):
        async with AsyncFleet(amqp_url, namespace=namespace, stall_s=30) as client:
            task_id = await client.submit("sort: dbcae", samples=2)
            results = [result async for result in client.results()]

    assert [(result.task_id, result.response) for result in results] == [(task_id, "sort: dbcae")]


def test_the_source_is_read_no_further_than_there_is_room(amqp_url: str, namespace: str) -> None:
    drawn: list[str] = []

    def source() -> Iterator[Task]:
        for task in tasks(500):
            drawn.append(task.task_id)
            yield task

    with fleet(amqp_url, namespace), Fleet(amqp_url, namespace=namespace, stall_s=30, most_open=10) as client:
        results = client.batch(source())
        next(results)
        assert len(drawn) <= 20
        assert len(list(results)) == 499


def test_it_submits_again_over_the_same_connection(amqp_url: str, namespace: str) -> None:
    with fleet(amqp_url, namespace), Fleet(amqp_url, namespace=namespace, stall_s=30) as client:
        assert [len(list(client.batch(tasks(3)))) for _ in range(3)] == [3, 3, 3]


def test_a_lost_connection_loses_no_answer_and_gives_none_twice(amqp_url: str, namespace: str) -> None:
    asked = tasks(600)
    parts = urlsplit(amqp_url)
    with fleet(amqp_url, namespace), proxy_to(str(parts.hostname), parts.port or 5672) as proxy:
        through = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()
        with Fleet(through, namespace=namespace, stall_s=30, most_open=50) as client:
            answered: list[str] = []
            for number, result in enumerate(client.batch(asked)):
                answered.append(result.task_id)
                if number in (50, 200, 400):
                    proxy.cut()

        assert sorted(answered) == sorted(task.task_id for task in asked)
        assert proxy.accepted >= 4


def test_an_answer_that_comes_twice_is_given_once(amqp_url: str, namespace: str) -> None:
    def twice(channel: BlockingChannel, properties: BasicProperties, task: Task) -> None:
        echo(channel, properties, task)
        echo(channel, properties, task)

    with fleet(amqp_url, namespace, twice), Fleet(amqp_url, namespace=namespace, stall_s=30) as client:
        assert len(list(client.batch(tasks(20)))) == 20


def test_publishing_without_waiting_leaves_the_tasks_in_the_queue(amqp_url: str, namespace: str) -> None:
    with fleet(amqp_url, namespace):
        pass
    with Fleet(amqp_url, namespace=namespace, stall_s=30, replies=False) as client:
        assert client.submit_all(tasks(700)) == 700

    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    waiting = connection.channel().queue_declare(namespace + TASKS, passive=True).method.message_count
    connection.close()
    assert waiting == 700


def test_where_nothing_answers_the_wait_ends_and_names_what_is_open(amqp_url: str, namespace: str) -> None:
    def silent(channel: BlockingChannel, properties: BasicProperties, task: Task) -> None:
        """No answer."""

    (asked,) = tasks(1)
    with (
        fleet(amqp_url, namespace, silent),
        Fleet(amqp_url, namespace=namespace, stall_s=1) as client,
        pytest.raises(TimedOut, match=asked.task_id),
    ):
        list(client.batch([asked]))


def test_a_task_that_a_full_queue_refuses_is_an_error_that_names_the_queue(amqp_url: str, namespace: str) -> None:
    with fleet(amqp_url, namespace, disk=10**4):
        pass
    with Fleet(amqp_url, namespace=namespace, stall_s=2) as client:

        def is_refused() -> bool:
            """Not in the first 2 s where the connection alone takes them."""
            with pytest.raises(TimedOut) as timed_out:
                list(client.batch(tasks(100)))
            return "the queue 'tasks' refuses messages: it is full" in str(timed_out.value)

        wait_until(is_refused)


def test_without_a_fleet_it_says_how_to_start_one(amqp_url: str, namespace: str) -> None:
    with Fleet(amqp_url, namespace=namespace) as client, pytest.raises(FleetError, match="ratchet up"):
        list(client.batch(tasks(1)))


def test_without_a_broker_it_says_so_at_once() -> None:
    with Fleet("amqp://guest:guest@127.0.0.1:1/") as client, pytest.raises(BrokerUnreachable, match="ratchet up"):
        list(client.batch(tasks(1)))
