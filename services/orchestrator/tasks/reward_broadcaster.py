"""Tells the agents what their answers were worth: what was logged since the last flush, one message for each agent.

A message for every task would cost the broker a copy of each Reward. Whoever is away misses it: the log is the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ratchet.bus.protocol import Bus
from ratchet.bus.topology import events_topic
from schemas.messages.agent_rewards import AgentRewards, TaskScores
from schemas.messages.base import Metadata
from schemas.records.interaction import Interaction

MOST_AT_ONCE = 2_000
"""Tasks in one message."""


class RewardBroadcaster:
    def __init__(self, bus: Bus, clock: Callable[[], datetime]) -> None:
        self._bus = bus
        self._clock = clock
        self._unsent: dict[str, list[TaskScores]] = {}
        self._sent = 0

    def add(self, agent_id: str, lines: Sequence[Interaction]) -> None:
        """The lines of one task; `agent_id` is the one whose Work it was."""
        first = lines[0]
        if first.sample is not None:
            of_task = {
                "task_id": first.task_id,
                "adapter_version": first.adapter_version,
                "scores": tuple([line.score for line in lines]),
            }
            self._unsent.setdefault(agent_id, []).append(TaskScores.from_valid(of_task))

    async def flush(self) -> None:
        """Raises BusError: what could not be sent then is not sent again."""
        unsent, self._unsent = self._unsent, {}
        for agent_id, tasks in unsent.items():
            for start in range(0, len(tasks), MOST_AT_ONCE):
                await self._broadcast(agent_id, tasks[start : start + MOST_AT_ONCE])

    async def _broadcast(self, agent_id: str, tasks: Sequence[TaskScores]) -> None:
        metadata = Metadata(timestamp=self._clock(), source="orchestrator")
        body = AgentRewards(agent_id=agent_id, metadata=metadata, tasks=tuple(tasks)).encode()
        self._sent += 1
        message_id = f"{agent_id}/rewards/{self._sent}"
        await self._bus.broadcast(events_topic(agent_id), body, type=AgentRewards.TYPE, message_id=message_id)
