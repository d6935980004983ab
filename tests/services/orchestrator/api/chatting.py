"""A house with its API in front, an agent and a scorer that answer at once, and OpenAI's own client to call it with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from openai import AsyncOpenAI

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import REWARDS
from ratchet.http.server.application import application
from schemas import Response, Reward, Work
from schemas.messages.response import FinishReason, Sample
from schemas.messages.reward import SampleScore
from tests.ratchet.http.plain_http import NO_TLS
from tests.services.orchestrator.house import SCORER, House, house
from tests.serving import serving


class Chatting:
    """`works` are those the agent saw; it answers with `texts`, scored by `scores`, unless it is told not to."""

    def __init__(self, at: House, address: str) -> None:
        self.at = at
        self.works: list[Work] = []
        self.texts: Sequence[str] = ("worse", "the best one", "middling")
        self.scores: Sequence[float | None] = (0.1, 0.9, 0.5)
        self.finish_reason: FinishReason = "stop"
        self.error: str | None = None
        self.is_silent = False
        self.tells_tokens = False
        self.http = httpx2.AsyncClient(base_url=address, verify=NO_TLS)
        self.requests: list[httpx2.Request] = []
        """Sent by OpenAI's client, those that it tried again too."""
        spoken = httpx2.AsyncClient(verify=NO_TLS, event_hooks={"request": [self._note]})
        self.openai = AsyncOpenAI(api_key="none", base_url=f"{address}/v1", max_retries=0, http_client=spoken)

    async def _note(self, request: httpx2.Request) -> None:
        self.requests.append(request)

    async def ask(self, *contents: str, model: str = "small", **fields: Any) -> Any:
        """A conversation whose last turn is the user's."""
        turns: list[Any] = [{"role": "user", "content": content} for content in contents]
        return await self.openai.chat.completions.create(model=model, messages=turns, **fields)

    async def handle(self, delivery: Delivery) -> None:
        work = Work.decode(delivery.body)
        self.works.append(work)
        if not self.is_silent:
            await self.answer(work)

    async def answer(self, work: Work) -> None:
        samples = () if self.error else tuple(self._sample(text) for text in self.texts)
        response = Response(
            task_id=work.task_id,
            response="",
            agent_id=work.agent_id,
            samples=samples,
            error=self.error,
            prompt_ids=(1, 2, 3),
            adapter_version=work.arm.adapter_version,
            engine="scripted",
            work=work,
        )
        scores = tuple(
            SampleScore(score=score) if score is not None else SampleScore(status="timeout") for score in self.scores
        )
        reward = Reward(task_id=work.task_id, scoring_agent_id="judge", scores=scores, scorer=SCORER, scored=response)
        await self.at.bus.publish(REWARDS, reward.encode(), type=Reward.TYPE, message_id="m")

    def _sample(self, text: str) -> Sample:
        ids = tuple(range(len(text)))
        return Sample(
            text=text,
            completion_ids=ids,
            logprobs=(-0.1,) * len(ids),
            finish_reason=self.finish_reason,
            token_texts=tuple(text) if self.tells_tokens else None,
        )


@asynccontextmanager
async def chatting(folder: Path, **settings: Any) -> AsyncIterator[Chatting]:
    async with house(folder, **settings) as at, served(at) as address:
        chat = Chatting(at, address)
        for queue in ("work.small", "work.small.high", "work.other"):
            await at.bus.consume(queue, chat.handle, prefetch=8)
        yield chat
        await chat.openai.close()
        await chat.http.aclose()


@asynccontextmanager
async def served(at: House) -> AsyncIterator[str]:
    """The orchestrator's application on a port of its own."""
    app = application("orchestrator", at.orchestrator.routers(), at.settings, lambda: None)
    async with serving(app) as address:
        yield address
