"""Tasks that come in over HTTP: admitted in this process, and their answers waited for.

A task is in the log, on disk, and its Work confirmed by the broker, when `submit` returns. Nothing is known here of
requests and statuses, but who asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ratchet.bus.protocol import Bus, derived_id
from ratchet.bus.topology import cancellations_topic
from ratchet.concurrency.keyed import KeyedFutures
from ratchet.http.access.roles import Caller
from ratchet.service.errors import BusError, NotAllowed, RatchetError
from ratchet.service.telemetry import Log
from schemas.messages.result import Result
from schemas.messages.task import Task, TaskCancelled
from schemas.messages.work import Work
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.intake import Intake, differs
from services.orchestrator.tasks.settler import Settler

log = Log("task-service")


class ResultWaiters(KeyedFutures[None]):
    """Callers who wait for a task to be closed; whoever closes one calls `resolve`, at next to no cost."""

    async def wait(self, task_id: str, is_closed: Callable[[], bool], seconds: float) -> bool:
        """Return whether it was closed in time. A caller that is cancelled leaves nothing behind."""
        if is_closed():
            return True
        if seconds <= 0:
            return False
        with self.of(task_id) as waiting:
            try:
                async with asyncio.timeout(seconds):
                    await waiting
            except TimeoutError:
                return is_closed()
        return True


class SaysSomethingElse(RatchetError):
    """A task with this id is known, and is another one."""


class ForeignTask(NotAllowed):
    """A task with this id is known, and the caller may not see it."""


class AlreadyClosed(RatchetError):
    """The task has ended, so it can't be cancelled."""

    problem = 409, "Has ended", "task-ended"


@dataclass(eq=False)
class TaskService:
    bus: Bus
    intake: Intake
    settler: Settler
    ledger: Ledger
    waits: ResultWaiters

    async def submit(self, task: Task, caller: Caller, *, same: bool = False, unasked: Collection[str] = ()) -> None:
        """Admit it, unless it is known. With `same`, one that is known must be the same: else SaysSomethingElse.

        `unasked`: fields that its sender did not name, so that they may differ.

        A caller that is cancelled leaves a task admitted or not, never half.
        Its ids are keys (`Caller.key_of`).
        Raises ForeignTask, Reject (ExpiredResult), BusError, DiskFull, JournalError.
        """
        new = await asyncio.shield(self.intake.submit(task, caller.owner, caller.tenant))
        if not new and (known := self.ledger.find(task.task_id)) and not caller.may_see(known.task_id, known.owner):
            raise ForeignTask("a task with this task_id is known, and is not yours: name another task_id")
        if same and not new and differs(task, await self._work(task.task_id), unasked):
            raise SaysSomethingElse(f"task {task.task_id} is known, and asks something else")

    async def answer(self, task_id: str, seconds: float) -> Result | None:
        """Its Result, if it has one within so many seconds."""
        await self.waits.wait(task_id, lambda: self._result(task_id) is not None, seconds)
        result = self._result(task_id)
        return Result.decode(result) if result else None

    async def cancel(self, task_id: str, caller: Caller) -> Result:
        """Close an open task as cancelled, and tell whoever works on it. A caller that goes away does not stop that.

        Raises AlreadyClosed, JournalError.
        """
        return await asyncio.shield(self._cancel(task_id, caller.name))

    async def _cancel(self, task_id: str, who: str) -> Result:
        work = await self.settler.cancel(task_id, who)
        body = self._result(task_id)
        assert body is not None, "it is closed, by this call or before it"
        result = Result.decode(body)
        if work is None:
            raise AlreadyClosed(f"the task has ended before: it is {result.status}")
        message = TaskCancelled(task_id=task_id, agent_id=work.agent_id, metadata=result.metadata)
        try:
            await self.bus.broadcast(
                cancellations_topic(work.agent_id),
                message.encode(),
                type=TaskCancelled.TYPE,
                message_id=derived_id(task_id, "cancelled"),
            )
        except BusError as error:
            log.warning("works-in-vain", f"its agent was not told that it is cancelled: {error}", task_id=task_id)
        return result

    def _result(self, task_id: str) -> bytes | None:
        known = self.ledger.find(task_id)
        return known.result if known else None

    async def _work(self, task_id: str) -> Work:
        known = self.ledger.find(task_id)
        assert known is not None
        return await self.ledger.work_of(known)
