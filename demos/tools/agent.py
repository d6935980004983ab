"""The agent with tools, as anybody would write one for OpenAI's chat completions; and the process that records it.

Every sample of every task is a rollout of its own, side by side with the others, recorded as `ratchet record` does it.
The process ends when its end of the pipe does: with whoever started it.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import uvloop

from demos.toy.tools.task import TOOLS, Workspace, outcome, task_of
from ratchet.bus.protocol import Delivery, decode_delivery
from ratchet.conversation.bridge import limits_of
from ratchet.models.tokenization import keep_torch_out
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
from services.cli.fleet.folder import FleetAccess
from services.cli.record import replicas
from services.cli.terminal import CommandError

TASKS, ROLLOUTS = 32, 48
"""The most tasks and rollouts at once."""
SILENT_S = 120.0
IDLE_S = 2.0
"""A connection to the recorder is kept so long for the next rollout: less than the recorder keeps it."""
MOST_CALLS = 8
"""The most calls of the model. A careful answer takes six at most."""
AGENT, PROGRAM = "small", "tool-agent"
STOP_S = 15.0


async def converse(http: httpx.AsyncClient, base_url: str, key: str, workspace: Workspace) -> str:
    """Let the model work until it answers. Return its answer, "" where it called tools to the last.

    Raises httpx.HTTPError.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": workspace.task.question}]
    for _ in range(MOST_CALLS):
        asked = {"model": "any", "messages": messages, "tools": TOOLS}
        reply = await http.post(f"{base_url}/chat/completions", json=asked, headers={"Authorization": f"Bearer {key}"})
        message = reply.raise_for_status().json()["choices"][0]["message"]
        if not message.get("tool_calls"):
            return str(message["content"])
        messages.append(message)
        for call in message["tool_calls"]:
            brought = workspace.use(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": brought})
    return ""


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


def http_client() -> httpx.AsyncClient:
    """One for all rollouts: each call brings the key of its own."""
    limits = httpx.Limits(max_keepalive_connections=ROLLOUTS, keepalive_expiry=IDLE_S)
    return httpx.AsyncClient(timeout=SILENT_S, limits=limits, trust_env=False)


@contextmanager
def tool_agent(access: FleetAccess, queue: str, log: Path) -> Iterator[None]:
    """Answer the Work of this queue, named without the namespace, from another process within the block.

    Raises CommandError where it does not get ready; `log` says why.
    """
    context = multiprocessing.get_context("spawn")
    ours, its_own = context.Pipe()
    where = (access.amqp_url, access.namespace, queue, replicas(access.record, AGENT))
    process = context.Process(target=_answer, args=(its_own, log, *where))
    process.start()
    its_own.close()
    try:
        try:
            ours.recv()
        except EOFError:
            raise CommandError(f"the tool agent did not start: see {log}") from None
        yield
    finally:
        ours.close()
        process.join(STOP_S)
        if process.is_alive():
            process.kill()
            process.join()


def _answer(pipe: Connection, log: Path, *where: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the demo's: its end is this one's
    keep_torch_out()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    uvloop.run(_serve(pipe, *where))


async def _serve(pipe: Connection, amqp_url: str, namespace: str, queue: str, agents: tuple[str, ...]) -> None:
    """Serve until the pipe ends, then delete the queue. Raises BusError, EngineError, ServerUnavailable."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stopped.set)
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(agent_client(None))
        model = await find_model(fleet, agents)
        if limits := limits_of(model.template):
            logging.warning("note: %s", "; ".join(limits))
        recorder = Recorder()
        base_url = await stack.enter_async_context(recorder.serving())
        bus = await own_bus(amqp_url, namespace, queue, name=PROGRAM)
        stack.push_async_callback(bus.stop, 0.0)
        agent = RecordedAgent(recorder, base_url, await stack.enter_async_context(http_client()))

        def order_of(work: Work, number: int) -> RolloutOrder:
            seconds = (work.deadline - work.admitted_at).total_seconds()
            return RolloutOrder(work, number, PROGRAM, model, partial(agent.run, work), seconds)

        answers = RecordedAnswers(bus, fleet, order_of)

        async def handle(delivery: Delivery) -> None:
            await answers.answer(decode_delivery(Work, delivery), delivery.body)

        await bus.consume(queue, handle, prefetch=TASKS, stalled_after_s=None)
        pipe.send("ready")
        await stopped.wait()
    await asyncio.to_thread(delete_queue, amqp_url, namespace + queue)
