"""A fleet that is one process: it answers each task once, with a random number of tokens, as its bounds allow.

In place of orchestrator, agent and scorer, for what concerns the manager alone. The same task again gets its answer
again. `python -m bench.manager.answering URL NAMESPACE [MOST]`: its queue holds so many tasks.
"""

from __future__ import annotations

import random
import sys

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from pika.spec import Basic, BasicProperties

from ratchet.bus.topology import EXCHANGE, TASKS
from schemas.messages.result import Result, TaskUsage
from schemas.messages.task import Task


def answer(channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
    task = Task.decode(body)
    most = (task.samples or 1) * (task.max_tokens or 1)
    usage = TaskUsage(prompt_tokens=1, sampled_tokens=random.Random(task.task_id).randint(0, most))
    result = Result(task_id=task.task_id, response="abcde", score=1.0, usage=usage)
    sent = BasicProperties(delivery_mode=2, type=Result.TYPE, correlation_id=properties.correlation_id)
    channel.basic_publish("", str(properties.reply_to), result.encode(), sent)
    channel.basic_ack(method.delivery_tag)


def declare(channel: BlockingChannel, namespace: str, most: str = "") -> None:
    """Declare the queue of tasks, which holds so many."""
    bound = {"x-max-length": int(most)} if most else {}
    channel.exchange_declare(namespace + EXCHANGE, "topic", durable=True)
    channel.queue_declare(namespace + TASKS, durable=True, arguments={"x-queue-type": "quorum"} | bound)
    channel.queue_bind(namespace + TASKS, namespace + EXCHANGE, namespace + TASKS)


def main(url: str, namespace: str, most: str = "") -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    declare(channel, namespace, most)
    channel.basic_qos(prefetch_count=256)
    channel.basic_consume(namespace + TASKS, answer)
    try:
        channel.start_consuming()
    except AMQPError as error:
        sys.exit(f"the broker went: {error!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
