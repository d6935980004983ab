"""Programs of another make on the fleet's queues: a user, an agent, a scorer. aio-pika, JSON, and nothing of ours.

They speak the draft shapes only: three, four and four fields.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from tests.waiting import until

ANSWER_S = 60.0
PREFETCH = 10

Fields = dict[str, Any]


def stamp() -> str:
    return datetime.now(UTC).isoformat()


class Peer:
    """One channel to the fleet's queues, `namespace` before each name."""

    def __init__(self, channel: AbstractChannel, namespace: str) -> None:
        self._channel = channel
        self._namespace = namespace
        self._results: dict[str, list[Fields]] = {}
        self._more = asyncio.Event()

    async def publish(self, queue: str, fields: Fields, **properties: Any) -> None:
        message = aio_pika.Message(json.dumps(fields).encode(), **properties)
        await self._channel.default_exchange.publish(message, self._namespace + queue, mandatory=True)

    async def submit(self, task_id: str, text: str, *, reply_to: str | None = None, **more: Any) -> None:
        """Submit a Task of the draft's three fields, and of `more`."""
        fields = {"task_id": task_id, "input": text, "metadata": {"timestamp": stamp(), "source": "test"}}
        await self.publish("tasks", fields | more, reply_to=reply_to, correlation_id=f"for {task_id}")

    async def answer_work(
        self,
        agent: str,
        answer: Callable[[Fields], str | None],
        *,
        to: str = "responses",
        straight: bool = False,
        reward_first: float | None = None,
    ) -> None:
        """Be the agent: answer each Work with the draft's four fields, unless the answer is None.

        Publish to the exchange `ratchet`, or `straight` to the queue. With `reward_first`, publish a Reward with this
        score before each answer.
        """

        through = await self._channel.get_exchange(self._namespace + "ratchet", ensure=False)
        exchange = self._channel.default_exchange if straight else through

        async def respond(work: Fields) -> None:
            text = answer(work)
            response = {
                "task_id": work["task_id"],
                "response": text,
                "agent_id": agent,
                "metadata": {"timestamp": stamp()},
            }
            if reward_first is not None:
                early = {"task_id": work["task_id"], "score": reward_first, "scoring_agent_id": "hasty"}
                await self.publish("rewards", early)
            if text is not None:
                await exchange.publish(aio_pika.Message(json.dumps(response).encode()), self._namespace + to)

        await self._consume(f"work.{agent}", respond)

    async def score_responses(self, score: Callable[[Fields], float]) -> None:
        """Be the scorer: reward each Response with the draft's four fields."""

        async def reward(response: Fields) -> None:
            metadata = {"timestamp": stamp(), "criteria": "as the test likes it"}
            fields = {"task_id": response["task_id"], "score": score(response), "scoring_agent_id": "foreign-scorer"}
            await self.publish("rewards", fields | {"metadata": metadata})

        await self._consume("responses", reward)

    async def score_whole(self, score: Callable[[Fields], float]) -> None:
        """Be the scorer: publish Rewards that carry the Response."""

        async def reward(response: Fields) -> None:
            fields = {"task_id": response["task_id"], "score": score(response), "scoring_agent_id": "foreign-scorer"}
            await self.publish("rewards", fields | {"scored": response})

        await self._consume("responses", reward)

    async def score_groups(self, score: Callable[[str], float | None]) -> None:
        """Be the scorer: score each sample by its text, without the Response in the Reward."""

        async def reward(response: Fields) -> None:
            told = [score(sample["text"]) for sample in response["samples"]]
            scores = [{"score": one} if one is not None else {"score": None, "status": "unscorable"} for one in told]
            fields = {"task_id": response["task_id"], "scores": scores, "scoring_agent_id": "foreign-scorer"}
            await self.publish("rewards", fields | {"metadata": {"timestamp": stamp()}})

        await self._consume("responses", reward)

    async def read_results(self) -> None:
        """Collect the messages of `results`, for `result`."""

        async def keep(result: Fields) -> None:
            self._results.setdefault(result["task_id"], []).append(result)
            self._more.set()

        await self._consume("results", keep)

    async def result(self, task_id: str) -> Fields:
        """Return the first Result of a task. Raises TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            while not (found := self._results.get(task_id)):
                self._more.clear()
                await self._more.wait()
        return found[0]

    def results_of(self, task_id: str) -> list[Fields]:
        return self._results.get(task_id, [])

    async def depth(self, queue: str) -> int:
        declared = await self._channel.declare_queue(self._namespace + queue, passive=True)
        return declared.declaration_result.message_count or 0

    async def bind_default_exchange(self, queue: str) -> None:
        """Ask for a copy of what is published straight to `responses`."""
        copies = await self._channel.get_queue(self._namespace + queue, ensure=False)
        await copies.bind("", self._namespace + "responses")

    async def purge(self, queue: str) -> None:
        await (await self._channel.get_queue(self._namespace + queue, ensure=False)).purge()

    async def at_rest(self, *queues: str) -> None:
        """Wait until these queues are empty. Raises AssertionError."""

        async def empty() -> bool:
            return not any([await self.depth(queue) for queue in queues])

        await until(empty, f"nothing in {', '.join(queues)}", ANSWER_S)

    async def _consume(self, name: str, handle: Callable[[Fields], Any]) -> None:
        async def on_message(message: AbstractIncomingMessage) -> None:
            async with message.process():
                await handle(json.loads(message.body))

        queue = await self._channel.get_queue(self._namespace + name, ensure=False)
        await queue.consume(on_message)


@asynccontextmanager
async def peer(amqp_url: str, namespace: str) -> AsyncIterator[Peer]:
    connection = await aio_pika.connect(amqp_url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.set_qos(prefetch_count=PREFETCH)
        yield Peer(channel, namespace)
