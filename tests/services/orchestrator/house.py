"""An orchestrator over the in-memory bus, with an agent and a scorer played by the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from ratchet.adapters.draw_secrets import DRAW_KEY
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import REWARDS, TASKS, topology_of
from ratchet.files.append_file import AppendFile
from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.reader import read
from schemas import Interaction, Response, Result, Reward, Task, Work
from schemas.messages.response import Sample
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.orchestrator.clocks import now
from services.orchestrator.orchestrator import Orchestrator
from services.orchestrator.settings import OrchestratorSettings
from tests.memory_bus import MemoryBus
from tests.waiting import until

REPLIES = "replies"
PACE = 0.2
"""The pace of the orchestrator's clocks, five times as fast, since tests wait for them."""
MINUTES = 1_000.0
"""A pace at which the orchestrator takes no second turn while a test runs."""
SCORER = ScorerIdentity(id="verifier:exact", revision="1")


class House:
    """One running orchestrator."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], datetime] = now,
        file_type: type[AppendFile] = AppendFile,
        bus: type[MemoryBus] = MemoryBus,
        pace: float = PACE,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.settings = OrchestratorSettings(
            logs_dir=folder,
            samples=2,
            **{"agents": ("small", "other"), "experiment_min_age_s": 0.0, "adapters_dir": folder / "adapters"}
            | settings,
        )
        keys = self.settings.decision_keys_dir
        keys.mkdir(parents=True, exist_ok=True)
        (keys / DRAW_KEY).write_bytes(b"the same draws in each run")
        self.bus = bus(topology_of(self.settings))
        self.replies = self.bus.open_reply_queue(REPLIES)
        self.orchestrator = Orchestrator(self.settings, self.bus, clock=clock, file_type=file_type, pace=pace)

    async def open(self) -> None:
        await self.bus.start()
        await self.orchestrator.start()
        for subscription in self.orchestrator.subscriptions():
            await self.bus.consume(subscription.queue, subscription.handler, prefetch=subscription.prefetch)

    async def close(self) -> None:
        await self.bus.stop(1.0)
        await self.orchestrator.stop()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, queue: str, body: bytes, *, type: str = "", reply_to: str | None = REPLIES) -> None:
        await self.bus.publish(queue, body, type=type, message_id="m", reply_to=reply_to, correlation_id="c")

    async def submit(self, task: Task, **how: Any) -> None:
        await self.send(TASKS, task.encode(), **how)

    async def submit_as(self, user_id: str, task: Task, correlation_id: str | None = None) -> None:
        """Publish a task as this user of the broker, whose name RabbitMQ has checked."""
        sent = Delivery(TASKS, task.encode(), reply_to=REPLIES, correlation_id=correlation_id, user_id=user_id)
        await self.orchestrator.parts.intake.handle(sent)

    async def work(self, count: int = 1, *, agent: str = "small", high: bool = False) -> list[Work]:
        queue = f"work.{agent}.high" if high else f"work.{agent}"
        await until(lambda: len(self.bus.deliveries_published(queue)) >= count)
        return [Work.decode(delivery.body) for delivery in self.bus.deliveries_published(queue)]

    async def reward(self, reward: Reward) -> None:
        await self.send(REWARDS, reward.encode(), reply_to=None)

    async def results(self, count: int = 1) -> list[Result]:
        await until(lambda: len(self.replies) >= count)
        return [Result.decode(delivery.body) for delivery in self.replies]

    async def dead_letters(self, count: int = 1) -> list[str]:
        await until(lambda: len(self.bus.waiting("dead-letters")) >= count)
        return [str(delivery.headers["x-ratchet-reason"]) for delivery in self.bus.waiting("dead-letters")]

    def logged(self) -> list[Interaction]:
        return [Interaction.decode(line.data) for line in read(self.folder, INTERACTIONS)]

    def assigned(self) -> list[dict[str, Any]]:
        return [json.loads(line.data) for line in read(self.folder, ASSIGNMENTS)]


house = House
"""It runs within `async with`."""


def answered(work: Work, *texts: str, error: str | None = None) -> Response:
    samples = tuple(Sample(text=text) for text in texts)
    return Response(
        task_id=work.task_id,
        response=texts[0] if texts else "",
        agent_id=work.agent_id,
        samples=samples,
        error=error,
        adapter_version="v1.0.0",
        work=work,
    )


def scored(response: Response, *scores: float | None) -> Reward:
    return Reward(
        task_id=response.task_id,
        score=scores[0] if scores else None,
        scoring_agent_id="judge",
        scores=tuple(
            SampleScore(score=score) if score is not None else SampleScore(score=None, status="timeout", reason="slow")
            for score in scores
        ),
        scorer=SCORER,
        scored=response,
    )
