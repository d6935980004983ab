"""The rewards an agent gets for its answers: a running mean for each adapter version, on /metrics and over HTTP.

Heard from copies of the scorer's messages, while the agent runs: a view, not a record; the log is the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from prometheus_client import Gauge

from services.bus import Bus, Delivery
from services.topology import REWARDS

rewards_heard = Gauge("ratchet_agent_rewards", "Scores this agent heard of.", ["adapter_version"])
running_score = Gauge("ratchet_agent_running_score", "Their running mean, 0 to 1.", ["adapter_version"])


class _Score(msgspec.Struct):
    score: float | None = None


class _Scored(msgspec.Struct):
    agent_id: str = ""
    adapter_version: str = ""


class _Reward(msgspec.Struct):
    """Only what is counted, of a message with much more in it."""

    scores: list[_Score] = msgspec.field(default_factory=list)
    scored: _Scored = msgspec.field(default_factory=_Scored)


_decoder = msgspec.json.Decoder(_Reward)


@dataclass(slots=True)
class RunningScore:
    """Over all scored samples of one adapter version."""

    count: int = 0
    mean: float = 0.0

    def add(self, score: float) -> None:
        self.count += 1
        self.mean += (score - self.mean) / self.count


class RewardListener:
    """One agent's; other agents' rewards are passed over."""

    def __init__(self, agent_id: str, bus: Bus) -> None:
        self._agent_id = agent_id
        self._bus = bus
        self._scores: dict[str, RunningScore] = {}

    async def start(self) -> None:
        await self._bus.listen(REWARDS, self.hear)

    @property
    def scores(self) -> Mapping[str, RunningScore]:
        """By adapter version."""
        return self._scores

    def hear(self, delivery: Delivery) -> None:
        """A draft-shaped Reward names no version, a broken one is the orchestrator's affair: both are passed over."""
        try:
            reward = _decoder.decode(delivery.body)
        except msgspec.DecodeError:
            return
        version = reward.scored.adapter_version
        if reward.scored.agent_id != self._agent_id or not version:
            return
        running = self._scores.setdefault(version, RunningScore())
        for score in reward.scores:
            if score.score is not None:
                running.add(score.score)
        rewards_heard.labels(version).set(running.count)
        running_score.labels(version).set(running.mean)
