"""Rewards that waited through an outage are settled before any task expires: their answers were in time.

The backlog is taken anew whenever Rewards may have waited: at the start, after none could come from the broker, and
after the process itself stood still. A queue that is full holds up no expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ratchet.bus.protocol import Bus, Delivery, Handler
from ratchet.bus.topology import REWARDS, events_topic
from ratchet.service.errors import BusError, StorageUnavailable
from ratchet.service.telemetry import Log
from schemas.messages.base import Metadata
from schemas.messages.reward import AgentRewards, TaskScores
from schemas.records.interaction import Interaction
from services.orchestrator.clocks import now

MOST_AT_ONCE = 2_000
"""Tasks in one message."""


class RewardBroadcaster:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
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
        metadata = Metadata(timestamp=now(), source="orchestrator")
        body = AgentRewards(agent_id=agent_id, metadata=metadata, tasks=tuple(tasks)).encode()
        self._sent += 1
        message_id = f"{agent_id}/rewards/{self._sent}"
        await self._bus.broadcast(events_topic(agent_id), body, type=AgentRewards.TYPE, message_id=message_id)


LONGEST_S = 900.0
"""Seconds for which expiring waits at most, while the broker is there."""
STOOD_STILL_S = 10.0
"""The time without being asked after which the process had stopped, or the machine slept."""

log = Log("reward-backlog")


class RewardBacklog:
    """Wrap the handler of `rewards` in `counted`, and ask before each sweep."""

    def __init__(self, bus: Bus, seconds: Callable[[], float], *, longest_s: float = LONGEST_S) -> None:
        self._bus = bus
        self._seconds = seconds
        self._longest_s = longest_s
        self._begun = 0
        self._done = 0
        self._until: int | None = None
        """The number of Rewards that must have been handled; None: not known yet."""
        self._since: float | None = None
        self._asked = seconds()
        self._cleared = False

    @property
    def cleared(self) -> bool:
        """The answer of `is_cleared` when it was asked last."""
        return self._cleared

    def count_rewards(self, handler: Handler) -> Handler:
        async def handle(delivery: Delivery) -> None:
            self._begun += 1
            try:
                await handler(delivery)
            except (BusError, StorageUnavailable):
                self._begun -= 1  # it stays in hand, and is handled again
                raise
            except BaseException:
                self._done += 1
                raise
            self._done += 1

        return handle

    async def is_cleared(self) -> bool:
        """Return whether tasks may expire now. Raises BusError where the broker can't say what waits."""
        asked, self._asked = self._asked, self._seconds()
        # Not `trouble`: the queue of an absent agent may be full for days, and holds up no Reward.
        is_cut_off = self._bus.delivery_trouble(REWARDS) is not None
        if is_cut_off or self._asked - asked > STOOD_STILL_S:
            self._cleared, self._until, self._since = False, None, None
        if self._cleared or is_cut_off:
            return self._cleared
        self._since = self._asked if self._since is None else self._since
        if self._asked - self._since > self._longest_s:
            log.warning("gave-up", f"Rewards still wait after {self._longest_s:,.0f} s: tasks expire again")
            self._cleared = True
        elif self._until is None:
            waiting = (await self._bus.state(REWARDS)).messages
            self._until = self._begun + waiting
        if self._until is not None and self._done >= self._until:
            self._cleared = True
        return self._cleared
