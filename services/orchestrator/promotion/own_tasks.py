"""Tasks the orchestrator asks of its own fleet, as the gate does. They go the way of all tasks, past users' backlog.

Logged like any other, with an experiment id that begins with `validation:`, which keeps them out of training and
experiments; no user gets their Results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime, timedelta

from ratchet.bus.topology import HIGH_PRIORITY
from ratchet.concurrency.keyed import KeyedFutures
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.interaction import Interaction

Ask = Callable[[Task, Callable[[int], Arm]], Awaitable[None]]
"""Admit a task with the arm made for its sequence number."""
ANSWERS_AT_ONCE = 8
"""Answers of each version that is asked; a task that asks for more of them is asked alone."""


class OwnTasks(KeyedFutures[Sequence[Interaction]]):
    """Asks, and waits for the lines of the log, which `resolve` brings."""

    async def answer(self, ask: Ask, task: Task, arm: Callable[[int], Arm]) -> Sequence[Interaction]:
        """The task's lines, once logged; one that expires has one line, without a sample. Raises what `ask` raises."""
        with self.of(task.task_id) as waiting:
            await ask(task, arm)
            return await waiting


@dataclass(eq=False)
class Asked:
    """One version, or program, that is asked several tasks: few at a time, so that users do not wait, and until a
    deadline, when those that are open expire together and nothing more is asked.

    `name` is part of its tasks' ids. `samples`: the most that one of the tasks may ask for.
    """

    name: str
    arm: Callable[[int], Arm]
    own_tasks: OwnTasks
    ask: Ask
    _: KW_ONLY
    agent_id: str
    samples: InitVar[int]
    until: float
    clock: Callable[[], datetime]
    seconds: Callable[[], float]

    def __post_init__(self, samples: int) -> None:
        self._place = asyncio.Semaphore(max(1, ANSWERS_AT_ONCE // samples))

    async def answer(self, task: Task, prefix: str, number: str) -> Sequence[Interaction]:
        """Its lines; none where its turn does not come in time. The id: `prefix`, the name, the time, the number."""
        async with self._place:
            left_s = self.until - self.seconds()
            if left_s <= 0:
                return ()
            given = {
                "task_id": f"{prefix}/{self.name}/{self.seconds():.3f}/{number}",
                "agent_id": self.agent_id,
                "priority": HIGH_PRIORITY,
                "select": None,
                "pass_score": None,
                "deadline": self.clock() + timedelta(seconds=left_s),
            }
            return await self.own_tasks.answer(self.ask, task.model_copy(update=given), self.arm)
