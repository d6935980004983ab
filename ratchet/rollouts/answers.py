"""Works answered by recorded rollouts, whoever makes them: one for each sample, side by side, and then the Response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import httpx

from ratchet.bus.protocol import Bus
from ratchet.conversation.template import ChatTemplate
from ratchet.rollouts.agent import AgentTokens
from ratchet.rollouts.recording import publish_response, response_of
from ratchet.rollouts.rollout import Budget, RecordedRollout
from schemas.api.generate import ServedModel
from schemas.messages.response import GenerationLatencies, Sample
from schemas.messages.work import Work

Run = Callable[[Work, int, RecordedRollout], Awaitable[Sample]]
"""Makes a rollout: of a Work, the sample with that number. What it asks of a model goes through the recorder."""


class RecordedAnswers:
    """`agent_urls`: of the replicas whose model is asked; a rollout asks one of them for as long as it is there."""

    def __init__(
        self,
        bus: Bus,
        http: httpx.AsyncClient,
        agent_urls: Sequence[str],
        served: ServedModel,
        template: ChatTemplate,
        run: Run,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._bus = bus
        self._http = http
        self._agent_urls = agent_urls
        self._served = served
        self._template = template
        self._run = run
        self._now = now

    async def answer(self, work: Work, body: bytes) -> None:
        """Returns when the Response is confirmed; `body` is the Work as it came."""
        began = time.perf_counter()
        queue_s = max(0.0, (self._now() - work.admitted_at).total_seconds())
        rollouts = [
            rollout_of(work, number, self._http, self._agent_urls, self._served, self._template)
            for number in range(work.sampling.n)
        ]
        runs = (self._run(work, number, rollout) for number, rollout in enumerate(rollouts))
        samples = tuple(await asyncio.gather(*runs))
        latencies = GenerationLatencies(queue_s=queue_s, generate_s=time.perf_counter() - began)
        response = response_of(
            work, samples, engine=self._served.engine, source="ratchet record", now=self._now(), latencies=latencies
        )
        await publish_response(self._bus, response, body)


def rollout_of(
    work: Work,
    number: int,
    http: httpx.AsyncClient,
    agent_urls: Sequence[str],
    served: ServedModel,
    template: ChatTemplate,
    budget: Budget | None = None,
) -> RecordedRollout:
    """Return a rollout for that sample, answered by just the adapter and the sampling of its Work."""
    engine = AgentTokens(
        http,
        agent_urls,
        arm=work.arm,
        sampling=work.sampling,
        context=served.context or 0,
        ends=template.ends,
        first=work.arm.sequence + number,
    )
    model = f"{work.agent_id}@{work.arm.adapter_version}"
    return RecordedRollout(template, engine, model=model, sampling=work.sampling, budget=budget)
