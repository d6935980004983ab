"""A house whose agent answers by itself, with a mean score for each adapter version."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.publish import publish_adapter
from ratchet.adapters.registry import RegistryStore
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import ADAPTER_REPORTS, ADAPTERS, REWARDS, events_topic
from ratchet.logs.names import SECOND_VERDICTS, VALIDATION
from ratchet.service.errors import AdapterError
from schemas import AdapterEvent, AdapterReport, AdapterTrained, Response, Task, Work
from schemas.messages.base import BaseModelIdentity, Metadata
from schemas.records.registry import AgentAdapters
from tests.ratchet.adapters.making_adapters import card, published
from tests.services.orchestrator.house import SCORER, House, answered, scored
from tests.waiting import settled, until

AGENT = "small"


class LearningHouse(House):
    """`quality`: adapter version → mean score of its answers; noise of ±0.2 around it."""

    def __init__(self, folder: Path, quality: dict[str, float], **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.quality = quality
        self.refuses: dict[str, str] = {}
        self.events: list[AdapterEvent] = []
        self.store = RegistryStore.from_settings(self.settings)
        self.submitted = 0
        self.tasks = "task"
        """The prefix of tasks' ids."""
        self.noise = 0.2
        self.base: BaseModelIdentity | None = None
        """The model that the agent says it runs."""
        self.scores_validations = True
        self.asked_again: list[Response] = []
        """Responses that the scorer was asked about again, for a second verdict."""
        self.gives_second_verdicts = True
        self.asked: dict[str, Any] = {}
        """Further fields of users' tasks."""
        self.answers = 2
        """The number of answers to each task."""
        self.scorer = SCORER
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._random = random.Random(7)

    async def open(self) -> None:
        await self.bus.start()
        await self.bus.listen(events_topic(AGENT), self._hear)
        for queue in (f"work.{AGENT}", f"work.{AGENT}.high"):
            await self.bus.consume(queue, self._answer, prefetch=16)
        await self.bus.consume("responses", self._score, prefetch=16)
        await self.orchestrator.start()
        for subscription in self.orchestrator.subscriptions():
            await self.bus.consume(subscription.queue, subscription.handler, prefetch=subscription.prefetch)

    def _hear(self, delivery: Delivery) -> None:
        if delivery.type == AdapterEvent.TYPE:
            self.events.append(AdapterEvent.decode(delivery.body))

    async def report(self) -> None:
        """Report as a replica does after each event."""
        event = self.events[-1]
        wanted = [adapter.version for adapter in event.adapters]
        report = AdapterReport(
            agent_id=AGENT,
            replica="replica-1",
            revision=event.revision,
            announced_at=event.metadata.timestamp,
            base=self.base,
            loaded=tuple(version for version in wanted if version not in self.refuses),
            refused={version: why for version, why in self.refuses.items() if version in wanted},
        )
        await self.bus.publish(ADAPTER_REPORTS, report.encode(), type=AdapterReport.TYPE, message_id="r")

    async def _answer(self, delivery: Delivery) -> None:
        await self.may_answer.wait()
        work = Work.decode(delivery.body)
        version = work.arm.adapter_version
        texts = (f"{text} by {version}" for text in "ab"[: self.answers])
        response = answered(work, *texts).model_copy(update={"adapter_version": version})
        tokens = {"completion_ids": (4, 5), "logprobs": (-0.5, -0.25)}
        samples = tuple(sample.model_copy(update=tokens) for sample in response.samples)
        response = response.model_copy(update={"samples": samples})
        await self.bus.publish("responses", response.encode(), type="", message_id="x")

    async def _score(self, delivery: Delivery) -> None:
        response = Response.decode(delivery.body)
        if response.task_id.startswith(SECOND_VERDICTS):
            self.asked_again.append(response)
            if not self.gives_second_verdicts:
                return
        mean = self.quality[response.adapter_version or response.response.rpartition(" by ")[2]]
        scores = [self._noisy(mean) for _ in response.samples]
        own = response.work is not None and (response.work.arm.experiment_id or "").startswith(VALIDATION)
        given = scores if self.scores_validations or not own else [None] * len(scores)
        reward = scored(response, *given).model_copy(update={"scorer": self.scorer})
        await self.bus.publish(REWARDS, reward.encode(), type="", message_id="w")

    def _noisy(self, mean: float) -> float:
        return min(1.0, max(0.0, mean + self._random.uniform(-self.noise, self.noise)))

    async def trained(
        self,
        *,
        seed: int = 1,
        files: Mapping[str, Path | bytes] | None = None,
        before_it_is_told: Callable[[Path], None] = lambda _: None,
        request_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Publish an adapter, and report it as the trainer does. `fields`: of its card."""
        adapters = self.folder / "adapters"
        if files is None:
            folder = published(adapters, AGENT, seed=seed, **fields)
        else:
            folder = publish_adapter(files, card(**fields), adapters, AGENT)
        sha256 = adapter_sha256(folder)
        before_it_is_told(folder)
        await self.told_of(folder.name, sha256, request_id)
        return folder.name

    async def told_of(self, version: str, sha256: str | None = None, request_id: str | None = None) -> None:
        """Report, as the trainer, that it trained this version; by default with the sum of its folder."""
        if sha256 is None:
            try:
                sha256 = adapter_sha256(self.folder / "adapters" / AGENT / version)
            except (AdapterError, OSError):
                sha256 = "0" * 64
        message = AdapterTrained(
            request_id=request_id or f"run-{version}",
            agent_id=AGENT,
            status="trained",
            metadata=Metadata(),
            adapter_version=version,
            adapter_sha256=sha256,
        )
        await self.bus.publish(ADAPTERS, message.encode(), type=AdapterTrained.TYPE, message_id="t")

    async def refused(self, request_id: str, reason: str, **metrics: float) -> None:
        """Report, as the trainer, that it refused a request."""
        message = AdapterTrained(
            request_id=request_id, agent_id=AGENT, status="refused", reason=reason, metrics=dict(metrics)
        )
        await self.bus.publish(ADAPTERS, message.encode(), type=AdapterTrained.TYPE, message_id="t")

    @property
    def adapters(self) -> AgentAdapters:
        return self.store.read().agent(AGENT)

    def state(self, version: str) -> str:
        entry = self.adapters.versions.get(version)
        return entry.state.value if entry else "unknown"

    @property
    def is_trying(self) -> bool:
        """True once an experiment takes traffic, a moment after the registry has it."""
        return self.orchestrator.parts.promoters[AGENT].arms.experiment is not None

    async def reach(self, version: str, *states: str, timeout_s: float = 20.0) -> None:
        """Wait for the state while the replica reports; of a canary also for its share of the traffic."""
        for _ in range(int(timeout_s / 0.05)):
            if self.state(version) in states:
                await until(lambda: self.state(version) != "canary" or self.is_trying)
                return
            if self.events:
                await self.report()
            await settled()
        raise AssertionError(f"{version} is {self.state(version)}, not {states}")

    async def traffic(self, *, most: int = 3000, stop_when: Any) -> int:
        """Send users' tasks in small waves until the condition holds. Return their number."""
        began = self.submitted
        while not stop_when() and self.submitted - began < most:
            wave = 20
            for _ in range(wave):
                self.submitted += 1
                await self.submit(
                    Task(task_id=f"{self.tasks}-{self.submitted}", input="x", task_type="kind", **self.asked)
                )
            await until(lambda: len(self.bus.deliveries_published("results")) >= self.submitted)
            if self.events:
                await self.report()
            await settled()
        assert stop_when(), f"not after {self.submitted - began} tasks"
        return self.submitted - began


learning_house = LearningHouse
