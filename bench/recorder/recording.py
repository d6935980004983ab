"""Ratchet's recorder as a process: `python -m bench.recorder.recording ORDER`, in front of the engine or of an agent.

Made of what a runner and `ratchet record` are made of; each rollout's record is fsynced as a runner's before its end is
confirmed. It writes where it listens: for agents, and for whoever begins and ends rollouts, by lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop
from pydantic import BaseModel

from bench.recorder.script import CONTEXT, MODEL
from ratchet.conversation.template import ChatTemplate
from ratchet.models.tokenization import template_of
from ratchet.openai.client import http_client
from ratchet.rollouts.agent import Model, agent_client, served_by
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.recording import Ran, record, rollout_of
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.rollouts.vllm import VllmTokens
from schemas.messages.response import Sample
from schemas.messages.work import Sampling
from services.runner.kept_rollouts import KeptRollouts
from tests.making_work import work

MOST_BYTES = 1 << 34
SAMPLING = Sampling(max_tokens=4096)


class Order(BaseModel):
    """`url`: of the engine; with `agent`, of an agent in front of it."""

    url: str
    agent: bool
    tokenizer: Path
    folder: Path


class Recordings:
    """Rollouts by their keys, begun and ended from outside, as a program's would by its start and its exit."""

    def __init__(self, recorder: Recorder, make: Callable[[int], RecordedRollout], folder: Path) -> None:
        self._recorder = recorder
        self._make = make
        self._kept = KeptRollouts(folder, MOST_BYTES)
        self._numbers = 0
        self._over: dict[str, tuple[asyncio.Event, asyncio.Task[tuple[Sample, str]]]] = {}

    async def begin(self) -> str:
        """The key of a new one."""
        over, key = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def run(rollout: RecordedRollout) -> Ran:
            with self._recorder.key_for(rollout) as given:
                key.set_result(given)
                await over.wait()
            return Ran("done", "finished")

        rollout = self._make(self._numbers)
        self._numbers += 1
        running = asyncio.create_task(record(rollout, "bench", run))
        named: str = await key
        self._over[named] = over, running
        return named

    async def end(self, key: str) -> Sample:
        """Its record, once it was on disk; then it is removed, as a runner does when the Response is confirmed."""
        over, running = self._over.pop(key)
        over.set()
        sample, _ = await running
        await asyncio.to_thread(self._kept.put, key, {0: sample})
        await asyncio.to_thread(self._kept.remove, key)
        return sample

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "begin" in asked:
            return {"keys": [await self.begin() for _ in range(asked["begin"])]}
        return summary(await self.end(asked["end"]))


def summary(sample: Sample) -> dict[str, Any]:
    """What of a record can be held against what the engine sent: the ids of each call, by the record's own account."""
    segments = sample.segments or ()
    calls = [one.completion_ids[start:stop] for one in segments for start, stop in one.spans]
    return {"segments": len(segments), "calls": calls, "breaks": dict(sample.usage.breaks) if sample.usage else {}}


async def serve(order: Order, template: ChatTemplate) -> None:
    async with AsyncExitStack() as stack:
        if order.agent:
            http = await stack.enter_async_context(agent_client(None))
            model = Model(await served_by(http, (order.url,)), template, (order.url,))

            def make(number: int) -> RecordedRollout:
                return rollout_of(work(f"bench-{number}", SAMPLING), 0, model, http)
        else:
            server = await stack.enter_async_context(http_client(order.url, None, streams=True))

            def make(number: int) -> RecordedRollout:
                engine = VllmTokens(server, model=MODEL, context=CONTEXT, sampling=SAMPLING)
                return RecordedRollout(template, engine, model=MODEL, sampling=SAMPLING)

        recorder = Recorder()
        base_url = await stack.enter_async_context(recorder.serving())
        recordings = Recordings(recorder, make, order.folder)

        async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(json.dumps(await recordings.answer(json.loads(line))).encode() + b"\n")

        listening = await asyncio.start_server(control, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        print(json.dumps({"base_url": base_url, "port": port}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    logging.disable(logging.WARNING)
    order = Order.model_validate_json(sys.argv[1])
    template = template_of(order.tokenizer)
    assert template is not None
    uvloop.run(serve(order, template))


if __name__ == "__main__":
    main()
