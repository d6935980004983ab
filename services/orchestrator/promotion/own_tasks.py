"""Tasks the orchestrator asks of its own fleet: the golden set of the validation gate. They go the way of all tasks.

Logged like any other, with an experiment id that begins with `validation:`, which keeps them out of training and
experiments; no user gets their Results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ratchet.concurrency.keyed import KeyedFutures
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.interaction import Interaction

Ask = Callable[[Task, Callable[[int], Arm]], Awaitable[None]]
"""Admit a task with the arm made for its sequence number."""


class OwnTasks:
    """Asks, and waits for the lines of the log."""

    def __init__(self) -> None:
        self._awaited = KeyedFutures[Sequence[Interaction]]()

    async def answer(self, ask: Ask, task: Task, arm: Callable[[int], Arm]) -> Sequence[Interaction]:
        """The task's lines, once logged; one that expires has one line, without a sample. Raises what `ask` raises."""
        with self._awaited.of(task.task_id) as waiting:
            await ask(task, arm)
            return await waiting

    def closed(self, task_id: str, lines: Sequence[Interaction]) -> None:
        self._awaited.resolve(task_id, lines)
