"""Records one task: `python -m ratchet.rollouts FD`, where the file descriptor holds a RecordOrder as JSON.

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
from contextlib import AsyncExitStack

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import TASKS
from ratchet.conversation.bridge import limits_of
from ratchet.logs.best_answer import ends_told
from ratchet.models.tokenization import keep_torch_out
from ratchet.rollouts.agent import agent_client, find_model
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.connecting import delete_queue, own_bus
from ratchet.rollouts.order import RecordOrder, own_queue, queue_name
from ratchet.rollouts.work import RecordedWork
from ratchet.service.errors import FAULTS, BusError
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.work import Work

FAILED, NO_BROKER, TIMED_OUT, INTERRUPTED = 1, 3, 4, 130


async def record(order: RecordOrder) -> Result:
    """Raises BusError, EngineError, ServerUnavailable."""
    task = order.task
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(agent_client(order.token))
        model = await find_model(http, order.agent_urls, order.tokenizer)
        for limit in limits_of(model.template, tools=False):
            say(f"note: {limit}")
        recorder = Recorder()
        base_url = await stack.enter_async_context(recorder.serving())
        bus = await own_bus(order.amqp_url, order.namespace, queue_name(task.task_id), name="ratchet record")
        recorded = RecordedWork(
            *(order, bus, http, model, recorder, base_url), tell=say, of_tools=limits_of(model.template, tools=True)
        )
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
            TASKS, asked.encode(), type=Task.TYPE, message_id=task.task_id, reply_to=queue, correlation_id=task.task_id
        )
        await result
    await asyncio.to_thread(delete_queue, order.amqp_url, queue)
    return result.result()


def show(result: Result, as_json: bool) -> int:
    """The exit code."""
    if as_json:
        sys.stdout.write(result.encode().decode() + "\n")
    elif result.status == "ok":
        sys.stdout.write(f"{result.response or ''}\n")
        score = "none" if result.score is None else f"{result.score:.3f}"
        say(f"score {score} · {result.agent_id} {result.adapter_version} · {result.task_id}")
        for sentence in ends_told(result.rollouts or ()):
            say(sentence)
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
    keep_torch_out()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # what it has to say is raised, too
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        order = RecordOrder.model_validate_json(file.read())
    try:
        result = asyncio.run(_until_signalled(order))
    except BusError as error:
        say(str(error))
        return NO_BROKER
    except FAULTS as error:
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
