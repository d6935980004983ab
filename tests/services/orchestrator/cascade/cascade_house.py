"""A house with a small and a big model that answer by themselves, and a scorer who knows how good each is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import REWARDS
from ratchet.logs.names import SECOND_VERDICTS
from schemas import Response, Result, Task, Work
from schemas.messages.response import Usage
from schemas.records.decision import Decision
from schemas.records.registry import CascadeStanding
from tests.services.orchestrator.house import SCORER, House, answered, scored
from tests.waiting import settled, until

SMALL, BIG = "small", "big"
PRICES = """currency = "EUR"
[agents]
small = { prompt = 0, sampled = 0, samples = 2, max_tokens = 16 }
big = { prompt = 1, sampled = 1000000, samples = 1, max_tokens = 16 }
"""


class CascadeHouse(House):
    """`quality`: agent → mean score of its answers; a fresh judgement gives the truth, which `truth` may name apart."""

    def __init__(self, folder: Path, quality: dict[str, float], **settings: Any) -> None:
        prices = folder / "prices.toml"
        prices.write_text(PRICES)
        defaults = {"agents": (SMALL, BIG), "cascade": f"{SMALL}={BIG}", "prices": prices}
        super().__init__(folder, **(defaults | settings))
        self.quality = quality
        self.truth = quality
        self.noise = 0.2
        self.big_is_there = True
        self.small_is_there = True
        self.refusal: str | None = None
        self.scorer = SCORER
        self.engine_of_big = "openai large"
        self.gives_verdicts = True
        self.asked_again: list[Response] = []
        self.asked_of_big: list[Work] = []
        self.store = RegistryStore.from_settings(self.settings)
        self.submitted = 0
        self._random = random.Random(5)

    async def open(self) -> None:
        await self.bus.start()
        for agent in (SMALL, BIG):
            for queue in (f"work.{agent}", f"work.{agent}.high"):
                await self.bus.consume(queue, self._answer, prefetch=64)
        await self.bus.consume("responses", self._score, prefetch=64)
        await self.orchestrator.start()
        for subscription in self.orchestrator.subscriptions():
            await self.bus.consume(subscription.queue, subscription.handler, prefetch=subscription.prefetch)
        await until(lambda: self.standing is not None)

    async def _answer(self, delivery: Delivery) -> None:
        work = Work.decode(delivery.body)
        if work.agent_id == BIG:
            self.asked_of_big.append(work)
        if not (self.big_is_there if work.agent_id == BIG else self.small_is_there):
            return
        if work.agent_id == BIG and self.refusal is not None:
            await self.publish_response(answered(work, error=self.refusal))
            return
        texts = ["big"] if work.agent_id == BIG else [f"small {n}" for n in range(work.sampling.n)]
        response = answered(work, *texts)
        usage = Usage(calls=1, prompt_tokens=10, sampled_tokens=3)
        samples = tuple(one.model_copy(update={"usage": usage}) for one in response.samples)
        engine = self.engine_of_big if work.agent_id == BIG else None
        await self.publish_response(response.model_copy(update={"samples": samples, "engine": engine}))

    async def publish_response(self, response: Response) -> None:
        await self.bus.publish("responses", response.encode(), type="", message_id="x")

    async def _score(self, delivery: Delivery) -> None:
        response = Response.decode(delivery.body)
        table = self.quality
        if response.task_id.startswith(SECOND_VERDICTS):
            self.asked_again.append(response)
            if not self.gives_verdicts:
                return
            table = self.truth
        scores = [self._noisy(table[one.text.split()[0]]) for one in response.samples]
        reward = scored(response, *scores).model_copy(update={"scorer": self.scorer})
        await self.bus.publish(REWARDS, reward.encode(), type="", message_id="w")

    def _noisy(self, mean: float) -> float:
        return min(1.0, max(0.0, mean + self._random.uniform(-self.noise, self.noise)))

    @property
    def standing(self) -> CascadeStanding | None:
        return self.store.read().agent(SMALL).cascade

    @property
    def step(self) -> int:
        return self.standing.state.step if self.standing else -1

    def decisions(self, kind: str = "move_cascade") -> list[Decision]:
        return [decision for decision, _ in self.store.ledger.read() if decision.move.kind == kind]

    async def ask(self, count: int = 1, **fields: Any) -> list[Result]:
        """Send users' tasks at once; return their Results."""
        before = len(self.replies)
        for _ in range(count):
            self.submitted += 1
            await self.submit(Task(**({"task_id": f"task-{self.submitted}", "input": "x"} | fields)))
        return (await self.results(before + count))[before:]

    async def traffic(self, *, most: int, until_step: int) -> int:
        """Send users' tasks in waves until the share is at this step. Return their number."""
        began = self.submitted
        while self.step < until_step and self.submitted - began < most:
            await self.ask(40)
            await settled()
        return self.submitted - began


cascade_house = CascadeHouse


def texts(results: Sequence[Result]) -> list[str]:
    return [(one.response or "").split()[0] for one in results]
