"""The rewards an agent gets for its answers: a running mean for each adapter version, on /metrics and over HTTP.

Heard from the orchestrator once they are logged, while the agent runs: a view, not a record; the log is the record.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Gauge

from ratchet.bus.protocol import Bus, Delivery
from ratchet.bus.topology import events_topic
from ratchet.experiments.served import Mean
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.messages.reward import AgentRewards

log = Log("agent.rewards")

rewards_heard = Gauge("ratchet_agent_rewards", "Scores this agent heard of.", ["adapter_version"])
running_score = Gauge("ratchet_agent_running_score", "Their running mean, 0 to 1.", ["adapter_version"])


class RewardListener:
    """One agent's."""

    def __init__(self, agent_id: str, bus: Bus) -> None:
        self._agent_id = agent_id
        self._bus = bus
        self._scores: dict[str, Mean] = {}

    async def start(self) -> None:
        await self._bus.listen(events_topic(self._agent_id), self.receive)

    @property
    def scores(self) -> Mapping[str, Mean]:
        """Return the mean score over all scored samples, by adapter version."""
        return self._scores

    def receive(self, delivery: Delivery) -> None:
        """The topic has other events too, which are for others."""
        if delivery.type != AgentRewards.TYPE:
            return
        try:
            rewards = AgentRewards.decode(delivery.body)
        except DecodeError as error:
            log.error("rewards-unreadable", error.reason)
            return
        for task in rewards.tasks:
            running = self._scores.setdefault(task.adapter_version, Mean())
            for score in task.scores:
                if score is not None:
                    running.add(score)
        for version in {task.adapter_version for task in rewards.tasks}:
            rewards_heard.labels(version).set(self._scores[version].count)
            running_score.labels(version).set(self._scores[version].mean)
