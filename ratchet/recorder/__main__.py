"""Records one task: `python -m ratchet.recorder FD`, where the file descriptor holds a RecordOrder as JSON.

`ratchet record` becomes this process. It asks the fleet a task whose Work comes here, runs the program, sends the
Response, and writes the Result. Killed, it takes the program along; its Work waits in a queue of the task's own for the
same command with the same task id, until the deadline.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

import httpx

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import BrokerUnreachable, connected, without_password
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import TASKS, Queue, Topology
from ratchet.conversation.bridge import limits_of
from ratchet.openai.errors import ServerUnavailable
from ratchet.recorder.agent import agent_client, served_model, template_for
from ratchet.recorder.application import Recorder
from ratchet.recorder.order import RecordOrder, own_queue, queue_name
from ratchet.recorder.work import RecordedWork
from ratchet.service.errors import BusError, RatchetError
from schemas.api.generate import ServedModel
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.work import Work

FAILED, NO_BROKER, TIMED_OUT, INTERRUPTED = 1, 3, 4, 130
CONNECT_S = 30.0
EXPIRES_MS = 3_600_000
"""Its queue is kept so long for one who comes back."""
MOST_BYTES = 64 * 1024 * 1024


async def record(order: RecordOrder) -> Result:
    """Raises BusError, EngineError, ServerUnavailable."""
    task = order.task
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(agent_client(order.token))
        served = await _served(http, order.agent_urls)
        template = await asyncio.to_thread(template_for, served, order.tokenizer)
        for limit in limits_of(template):
            say(f"note: {limit}")
        recorder = Recorder()
        base_url = await stack.enter_async_context(recorder.serving())
        bus = await _connected(order)
        recorded = RecordedWork(order, bus, http, served, template, recorder, base_url)
        stack.push_async_callback(recorded.stop)
        stack.push_async_callback(bus.stop, 0.0)  # first: what was delivered and not answered goes back
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        async def handle(delivery: Delivery) -> None:
            if delivery.type == Work.TYPE:
                await recorded.handle(delivery)
            elif delivery.type == Result.TYPE and not result.done():
                result.set_result(Result.decode(delivery.body))

        await bus.consume(queue_name(task.task_id), handle, prefetch=8, stalled_after_s=None)
        queue = own_queue(task.task_id, order.namespace)
        asked = task.model_copy(update={"work_to": queue})
        await bus.publish(
            TASKS,
            asked.encode(),
            type=Task.TYPE,
            message_id=task.task_id,
            reply_to=queue,
            correlation_id=task.task_id,
        )
        await result
    await asyncio.to_thread(_delete, order.amqp_url, queue)
    return result.result()


def _require_broker(amqp_url: str) -> None:
    with connected(amqp_url):
        pass


def _delete(amqp_url: str, queue: str) -> None:
    """The task is closed, so nothing comes any more. If it can't be, it expires."""
    with suppress(BusError), connected(amqp_url) as connection:
        connection.channel().queue_delete(queue)


async def _served(http: httpx.AsyncClient, urls: Sequence[str]) -> ServedModel:
    """By the first replica that answers. Raises AgentRefused, ServerUnavailable."""
    for url in urls[:-1]:
        with suppress(ServerUnavailable):
            return await served_model(http, url)
    return await served_model(http, urls[-1])


async def _connected(order: RecordOrder) -> RabbitBus:
    """Raises BrokerUnreachable, at once where nobody answers at first."""
    await asyncio.to_thread(_require_broker, order.amqp_url)
    own = Queue(
        queue_name(order.task.task_id),
        "any",
        ("orchestrator",),
        ("whoever records",),
        "The Work and the Result of one task.",
        1.0,
        MOST_BYTES,
        dead_letters=False,
        expires_ms=EXPIRES_MS,
    )
    topology = Topology((own,), ())
    bus = RabbitBus(order.amqp_url, topology, name="ratchet record", namespace=order.namespace, declare=False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await bus.start()
    except TimeoutError:
        where = without_password(order.amqp_url)
        raise BrokerUnreachable(f"no fleet at {where} within {CONNECT_S:g} s ({bus.trouble()})") from None
    return bus


def show(result: Result, as_json: bool) -> int:
    """The exit code."""
    if as_json:
        sys.stdout.write(result.encode().decode() + "\n")
    elif result.status == "ok":
        sys.stdout.write(f"{result.response or ''}\n")
        score = "none" if result.score is None else f"{result.score:.3f}"
        say(f"score {score} · {result.agent_id} {result.adapter_version} · {result.task_id}")
    else:
        say(f"{result.status}: {result.reason or 'no reason given'} ({result.task_id})")
    sys.stdout.flush()
    return {"ok": 0, "expired": TIMED_OUT}.get(result.status, FAILED)


def say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


async def _until_signalled(order: RecordOrder) -> Result | None:
    """None where SIGINT or SIGTERM came first."""
    work = asyncio.ensure_future(record(order))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return None


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # what it has to say is raised, too
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        order = RecordOrder.model_validate_json(file.read())
    try:
        result = asyncio.run(_until_signalled(order))
    except BusError as error:
        say(str(error))
        return NO_BROKER
    except RatchetError as error:
        say(str(error))
        return FAILED
    if result is None:
        say(
            f"the task {order.task.task_id} is open until its deadline; what ran is ended and counts for nothing. "
            f"To go on: the same command with --task-id {order.task.task_id}"
        )
        return INTERRUPTED
    return show(result, order.as_json)


if __name__ == "__main__":
    sys.exit(main())
