"""Tasks the orchestrator asks of its own fleet: the golden set of the validation gate. They go the way of all tasks.

Logged like any other, with an experiment id that begins with `validation:`, which keeps them out of training and
experiments; no user gets their Results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.interaction import Interaction

Ask = Callable[[Task, Callable[[int], Arm]], Awaitable[None]]
"""Admit a task with the arm made for its sequence number."""


class OwnTasks:
    """Asks, and waits for the lines of the log."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Future[Sequence[Interaction]]] = {}

    async def answer(self, ask: Ask, task: Task, arm: Callable[[int], Arm]) -> Sequence[Interaction]:
        """The task's lines, once logged; one that expires has one line, without a sample. Raises what `ask` raises."""
        waiting = self._awaited[task.task_id] = asyncio.get_running_loop().create_future()
        try:
            await ask(task, arm)
            lines: Sequence[Interaction] = await waiting
            return lines
        finally:
            del self._awaited[task.task_id]

    def closed(self, task_id: str, lines: Sequence[Interaction]) -> None:
        waiting = self._awaited.get(task_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(lines)
