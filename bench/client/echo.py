"""A worker that answers each task with a Result at once: one pika connection, which acks when it has published."""

from __future__ import annotations

import sys

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from schemas.messages.result import Result
from schemas.messages.task import Task


def answer(channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
    result = Result(task_id=Task.decode(body).task_id, response="abcde", score=1.0)
    channel.basic_publish("", str(properties.reply_to), result.encode(), BasicProperties(delivery_mode=2))
    channel.basic_ack(method.delivery_tag)


def main(url: str, queue: str) -> None:
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=256)
    channel.basic_consume(queue, answer)
    channel.start_consuming()


if __name__ == "__main__":
    main(*sys.argv[1:])
