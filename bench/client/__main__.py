"""`python -m bench.client`: tasks/s of the client library beside a bare aio-pika publisher and consumer, in turns.

All speak to the same worker (bench/manager/answering.py), which answers at once. The bare one has confirms and a
window, as the library has, and neither connects again nor knows which tasks are open.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from statistics import median

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.manager.answering import declare
from bench.rig import private_broker
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.topology import EXCHANGE, TASKS
from ratchet.client import AsyncFleet, Fleet
from ratchet.client.fleet import CONFIRM_WINDOW
from schemas.messages.result import Result
from schemas.messages.task import Task

NAMESPACE = "bench-client."
QUEUE = NAMESPACE + TASKS


def tasks(count: int) -> list[Task]:
    run = uuid.uuid4().hex[:8]
    return [Task(task_id=f"{run}-{number}", input="sort: dbcae") for number in range(count)]


def ask_with_fleet(url: str, asked: list[Task]) -> int:
    with Fleet(url, namespace=NAMESPACE) as fleet:
        return sum(1 for _ in fleet.batch(asked))


def ask_with_async_fleet(url: str, asked: list[Task]) -> int:
    async def ask() -> int:
        async with AsyncFleet(url, namespace=NAMESPACE) as fleet:
            return len([result async for result in fleet.batch(asked)])

    return asyncio.run(ask())


def ask_with_aio_pika(url: str, asked: list[Task]) -> int:
    return asyncio.run(_ask_bare(url, asked))


async def _ask_bare(url: str, asked: list[Task]) -> int:
    connection = await aio_pika.connect(url)
    channel = await connection.channel()
    exchange = await channel.get_exchange(NAMESPACE + EXCHANGE)
    answers = await channel.declare_queue("", exclusive=True)
    came, window, all_came = 0, asyncio.Semaphore(CONFIRM_WINDOW), asyncio.Event()

    async def receive(message: AbstractIncomingMessage) -> None:
        nonlocal came
        Result.decode(message.body)
        await message.ack()
        came += 1
        if came == len(asked):
            all_came.set()

    async def publish(task: Task) -> None:
        persistent = aio_pika.DeliveryMode.PERSISTENT
        sent = aio_pika.Message(task.encode(), delivery_mode=persistent, reply_to=answers.name)
        await exchange.publish(sent, QUEUE, mandatory=False)
        window.release()

    await answers.consume(receive)
    async with asyncio.TaskGroup() as publishing:
        for task in asked:
            await window.acquire()
            publishing.create_task(publish(task))
    await all_came.wait()
    await connection.close()
    return came


CONTESTANTS: dict[str, Callable[[str, list[Task]], int]] = {
    "bare aio-pika": ask_with_aio_pika,
    "Fleet": ask_with_fleet,
    "AsyncFleet": ask_with_async_fleet,
}


def tasks_per_s(ask: Callable[[str, list[Task]], int], url: str, count: int) -> float:
    asked, began = tasks(count), time.monotonic()
    came = ask(url, asked)
    seconds = time.monotonic() - began
    if came != count:
        raise SystemExit(f"{came} Results for {count} tasks")
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with private_broker() as (url, _):
        with open_connection(url) as connection:
            declare(connection.channel(), NAMESPACE)
        worker = subprocess.Popen([sys.executable, "-m", "bench.manager.answering", url, NAMESPACE])
        try:
            for _ in range(given.rounds):
                for name, ask in CONTESTANTS.items():
                    found[name].append(tasks_per_s(ask, url, given.tasks))
        finally:
            worker.kill()
            worker.wait()
    bare = median(found["bare aio-pika"])
    for name, rates in found.items():
        print(f"{name:14} {median(rates):6.0f} tasks/s  {median(rates) / bare:.2f} of the bare one  {rates}")


if __name__ == "__main__":
    main()
