"""Works answered by recorded rollouts, whoever makes them: one for each sample, side by side, and then the Response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import httpx

from ratchet.bus.message_id import derived_id
from ratchet.bus.protocol import Bus
from ratchet.bus.topology import RESPONSES
from ratchet.conversation.template import ChatTemplate
from ratchet.recorder.agent import AgentTokens
from ratchet.recorder.rollout import RecordedRollout
from ratchet.service.errors import Reject
from ratchet.service.telemetry import Log
from schemas.api.generate import ServedModel
from schemas.messages.base import Metadata
from schemas.messages.response import GenerationLatencies, Response, Sample
from schemas.messages.work import Work

log = Log("recorder")

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
        rollouts = [self._rollout(work, number) for number in range(work.sampling.n)]
        runs = (self._run(work, number, rollout) for number, rollout in enumerate(rollouts))
        samples = tuple(await asyncio.gather(*runs))
        response = Response(
            task_id=work.task_id,
            response=samples[0].text,
            agent_id=work.agent_id,
            metadata=Metadata(timestamp=self._now(), source="ratchet record"),
            samples=samples,
            sampling=work.sampling,
            adapter_version=work.arm.adapter_version,
            adapter_sha256=work.arm.adapter_sha256,
            engine=self._served.engine,
            latencies=GenerationLatencies(queue_s=queue_s, generate_s=time.perf_counter() - began),
        )
        try:
            await self._publish(response, body)
        except Reject as too_large:
            log.error("too-large", f"{too_large}: these rollouts are lost")
            error = f"what was recorded can't be sent: {too_large}"
            await self._publish(response.model_copy(update={"samples": (), "response": "", "error": error}), body)

    async def _publish(self, response: Response, work: bytes) -> None:
        message_id = derived_id(response.task_id, "response")
        await self._bus.publish(
            RESPONSES, response.encode_around("work", work), type=Response.TYPE, message_id=message_id
        )

    def _rollout(self, work: Work, number: int) -> RecordedRollout:
        engine = AgentTokens(
            self._http,
            self._agent_urls,
            arm=work.arm,
            sampling=work.sampling,
            context=self._served.context or 0,
            ends=self._template.ends,
            first=number,
        )
        model = f"{work.agent_id}@{work.arm.adapter_version}"
        return RecordedRollout(self._template, engine, model=model, sampling=work.sampling)
