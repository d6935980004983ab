"""Answers tool tasks for a fleet: `python -m demos.toy.tools.agent`, with an AgentOrder in a line of stdin.

Every sample of every task is a rollout of its own, side by side with the others, recorded as `ratchet record` does it.
It writes a line once it is ready, and ends when its stdin does: with whoever started it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack
from functools import partial

import httpx
import uvloop

from demos.toy.tools.agent.conversing import converse
from demos.toy.tools.agent.order import AgentOrder
from demos.toy.tools.task import Workspace, outcome, task_of
from ratchet.bus.protocol import Delivery, decode_delivery
from ratchet.conversation.bridge import limits_of
from ratchet.models.without_torch import keep_torch_out
from ratchet.programs.task_input import as_text
from ratchet.rollouts.agent import agent_client, find_model
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.connecting import delete_queue, own_bus
from ratchet.rollouts.recording import Ran, RolloutOrder
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.rollouts.work import RecordedAnswers
from ratchet.service.errors import Reject
from schemas.messages.response import SampleStatus
from schemas.messages.work import Work

TASKS, ROLLOUTS = 32, 48
"""At once."""
SILENT_S = 120.0
IDLE_S = 2.0
"""A connection to the recorder is kept so long for the next rollout: less than the recorder keeps it."""
PROGRAM = "tool-agent"


class RecordedAgent:
    """The agent's rollouts, with the recorder between it and the model."""

    def __init__(self, recorder: Recorder, base_url: str, http: httpx.AsyncClient) -> None:
        self._recorder = recorder
        self._base_url = base_url
        self._http = http
        self._room = asyncio.Semaphore(ROLLOUTS)

    async def run(self, work: Work, rollout: RecordedRollout) -> Ran:
        """Return what became of the workspace, which is scored. Raises Reject for a task that is not of the tools."""
        try:
            workspace = Workspace(task_of(as_text(work.input)))
        except ValueError as error:
            raise Reject(str(error)) from None
        said = says = ""
        status: SampleStatus = "finished"
        async with self._room:
            with self._recorder.key_for(rollout) as key:
                try:
                    said = await converse(self._http, self._base_url, key, workspace)
                except httpx.HTTPError as error:
                    status, says = "failed", f"a call failed: {error or type(error).__name__}"
        return Ran(outcome(workspace.changed_files, said), status, says=says)


def agent_s_client() -> httpx.AsyncClient:
    """One for all rollouts: each call brings the key of its own."""
    limits = httpx.Limits(max_keepalive_connections=ROLLOUTS, keepalive_expiry=IDLE_S)
    return httpx.AsyncClient(timeout=SILENT_S, limits=limits, trust_env=False)


async def serve(order: AgentOrder, stopped: asyncio.Event) -> None:
    """Until it is stopped; then its queue is gone. Raises BusError, EngineError, ServerUnavailable."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(agent_client(None))
        model = await find_model(fleet, order.agent_urls)
        if limits := limits_of(model.template):
            say(f"note: {'; '.join(limits)}")
        recorder = Recorder()
        base_url = await stack.enter_async_context(recorder.serving())
        bus = await own_bus(order.amqp_url, order.namespace, order.queue, name=PROGRAM)
        stack.push_async_callback(bus.stop, 0.0)
        http = await stack.enter_async_context(agent_s_client())
        agent = RecordedAgent(recorder, base_url, http)

        def order_of(work: Work, number: int) -> RolloutOrder:
            seconds = (work.deadline - work.admitted_at).total_seconds()
            return RolloutOrder(work, number, PROGRAM, model, partial(agent.run, work), seconds)

        answers = RecordedAnswers(bus, fleet, order_of)

        async def handle(delivery: Delivery) -> None:
            await answers.answer(decode_delivery(Work, delivery), delivery.body)

        await bus.consume(order.queue, handle, prefetch=TASKS, stalled_after_s=None)
        say("ready")
        await stopped.wait()
    await asyncio.to_thread(delete_queue, order.amqp_url, order.namespace + order.queue)


def say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


async def _until_stdin_ends(order: AgentOrder) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopped.set)
    await serve(order, stopped)


def main() -> None:
    keep_torch_out()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    uvloop.run(_until_stdin_ends(AgentOrder.model_validate_json(sys.stdin.buffer.readline())))


if __name__ == "__main__":
    main()
