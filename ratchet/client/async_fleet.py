"""The client for asyncio. It knows which tasks are open, and gives each of their Results once, by `task_id`.

It keeps nothing on disk. A task that the fleet has is answered and logged whether or not anybody waits, and the same
`task_id` sent again gets the same Result.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import ValidationError

from ratchet.client.shards import ShardedLink
from ratchet.service.errors import FleetError, RatchetError, TimedOut
from schemas.messages.base import Message, explain
from schemas.messages.feedback import Feedback
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest

CONFIRM_WINDOW = 256
PATIENCE_S, PAUSE_S = 60.0, 0.5
"""Seconds that a lost fleet is waited for, and between two tries. One that was never there is not waited for."""
MOST_OPEN, MOST_OPEN_OVER_HTTP = 4096, 64
CLOSE_S = 5.0

Asked = Task | str | Mapping[str, Any]
"""A task, what it asks, or the fields of one; a `task_id` is made up where there is none."""
Sent = Task | Feedback | TrainRequest
M = TypeVar("M", bound=Message)


class Progress(NamedTuple):
    """Counts of tasks since the client was made. Those that are neither answered nor failed are open."""

    submitted: int = 0
    answered: int = 0
    failed: int = 0


class Source:
    """Tasks that are read as there is room for them; `more` until they have ended."""

    def __init__(self, tasks: Iterable[Asked]) -> None:
        self._tasks = iter(tasks)
        self.more = True

    def read(self, room: int) -> list[Asked]:
        some = list(islice(self._tasks, max(0, room))) if self.more else []
        self.more = self.more and len(some) >= room
        return some


class AsyncFleet:
    """Make it within a running loop, and use it as a context manager.

    `url`: amqp(s):// of the broker, with the fleet's `namespace` where it has one, or http(s):// of the orchestrator,
    with the API's `token` where it asks for one. `most_open`: how many tasks of a batch are open at once. `stall_s`:
    TimedOut is raised where nothing came for so long. `replies`: whether tasks ask for their Result. `shards`: the
    broker's URLs of several fleets by namespace, among which tasks are divided, in place of `url` and `namespace`.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "",
        token: str | None = None,
        most_open: int | None = None,
        stall_s: float | None = None,
        replies: bool = True,
        shards: Mapping[str, str] | None = None,
    ) -> None:
        over_http = url.startswith(("http://", "https://"))
        self.progress = Progress()
        self.replies = replies
        self.fault: RatchetError | None = None
        """The error that ended the connection for good."""
        self._most_open = most_open or (MOST_OPEN_OVER_HTTP if over_http else MOST_OPEN)
        self._stall_s = stall_s
        self._open: dict[str, Task] = {}
        self._arrived: list[Result] = []
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._link: Any
        if over_http:
            from ratchet.client.http_link import HttpLink

            self._link = HttpLink(url, token, self)
        else:
            from ratchet.client.amqp_link import AmqpLink

            if shards:
                self._link = ShardedLink(shards, lambda one: AmqpLink(shards[one], one, self))
            else:
                self._link = AmqpLink(url, namespace, self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """Ids of tasks that are not answered yet, in the order in which they were submitted."""
        return tuple(self._open)

    @property
    def room(self) -> int:
        """The number of further tasks that `step` may be given now."""
        return min(CONFIRM_WINDOW - len(self._sending), self._most_open - len(self._open))

    async def submit(self, asked: Asked, **fields: Any) -> str:
        """Submit one task, and return its id once the fleet has it. `fields` are those of a Task."""
        task = as_task(asked, **fields)
        await self.submit_all([task])
        return task.task_id

    async def submit_all(self, tasks: Iterable[Asked]) -> int:
        """Submit them, and return how many, once the fleet has all. `results` gives their Results."""
        source, count = iter(tasks), 0
        while some := list(islice(source, CONFIRM_WINDOW)):
            self._send(some)
            while self._sending:
                await self._wait_for_change(f"{len(self._sending)} not confirmed")
            count += len(some)
        return count

    def results(self) -> AsyncIterator[Result]:
        """Yield the Result of each open task as it comes; end when none is open."""
        return self.batch(())

    async def batch(self, tasks: Iterable[Asked]) -> AsyncIterator[Result]:
        """Submit the tasks, reading them as there is room, and yield Results as they come; end when no task is open.

        Tasks with the same id get one Result. Raises BusError, FleetError, TimedOut.
        """
        source = Source(tasks)
        while (came := await self.step(source.read(self.room), more=source.more)) is not None:
            for result in came:
                yield result

    async def step(self, tasks: Sequence[Asked], *, more: bool) -> list[Result] | None:
        """Submit the tasks, wait for Results or, with `more` to come, for room. Returns what came: None at the end."""
        self._send(tasks)
        enough = max(1, min(CONFIRM_WINDOW, self._most_open) // 4)
        while not self._arrived and self._open and not (more and self.room >= enough):
            await self._wait_for_change(f"{len(self._open)} open, the oldest {next(iter(self._open))}")
        return self._take() if more or self._open or self._arrived else None

    async def listen(self, seconds: float) -> list[Result]:
        """Return the Results that came, waiting at most so long for the first. Raises BusError, FleetError."""
        if not self._arrived:
            await self._is_changed_within(seconds)
        return self._take()

    async def feedback(self, task_id: str, score: float, **fields: Any) -> str:
        """Say how good an answer was, from 0 to 1. Returns the feedback's id once the fleet has it.

        `fields` are those of a Feedback: `sample`, `correction`, `reason`, `feedback_id`.
        """
        given = {"task_id": task_id, "score": score, "feedback_id": f"feedback-{uuid.uuid4().hex}", **fields}
        feedback = _valid(Feedback, given)
        await self._send_one(feedback)
        return str(feedback.feedback_id)

    async def train(self, request: TrainRequest) -> None:
        """Ask for a training; it returns once the fleet has the request."""
        await self._send_one(request)

    async def _send_one(self, message: Sent) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._link.send(message)
        except TimeoutError:
            raise TimedOut(f"the fleet did not take it within {self._stall_s:g} s: see `ratchet status`") from None

    async def close(self) -> None:
        """Disconnect. Open tasks go on; `ratchet result`, or the same `task_id` again, gets their answers."""
        for sending in self._sending.values():
            sending.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._link.close()

    def receive(self, result: Result) -> None:
        """Take a Result that the link has. A task that is not open has its own already."""
        if self._open.pop(result.task_id, None) is not None:
            ok, (submitted, answered, failed) = result.status == "ok", self.progress
            self.progress = Progress(submitted, answered + ok, failed + (not ok))
            self._arrived.append(result)
            self._changed.set()

    def fail(self, fault: RatchetError) -> None:
        self.fault = self.fault or fault
        self._changed.set()

    def send_open_again(self) -> None:
        """Submit what is not answered, over another connection."""
        for task in tuple(self._open.values()):
            if task.task_id not in self._sending:
                self._start_sending(task)

    def _send(self, tasks: Iterable[Asked]) -> None:
        for task in map(as_task, tasks):
            if task.task_id not in self._open:
                self.progress = self.progress._replace(submitted=self.progress.submitted + 1)
                if self.replies:
                    self._open[task.task_id] = task
                self._start_sending(task)

    def _start_sending(self, task: Task) -> None:
        self._sending[task.task_id] = sending = asyncio.create_task(self._link.send(task), name=task.task_id)
        sending.add_done_callback(self._on_sent)

    def _on_sent(self, sending: asyncio.Task[None]) -> None:
        self._sending.pop(sending.get_name(), None)
        self._changed.set()
        if not sending.cancelled() and (error := sending.exception()):
            self.fail(error if isinstance(error, RatchetError) else FleetError(f"a task can't be sent: {error!r}"))

    def _take(self) -> list[Result]:
        came, self._arrived = self._arrived, []
        return came

    async def _wait_for_change(self, waiting: str) -> None:
        if not await self._is_changed_within(self._stall_s):
            raise TimedOut(f"nothing came for {self._stall_s:g} s ({waiting}): see `ratchet status`")

    async def _is_changed_within(self, seconds: float | None) -> bool:
        """Raises what ended the connection."""
        self._changed.clear()
        if self.fault is None:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return False
        if self.fault is not None:
            raise self.fault
        return True  # not whether it is set: another who waits may have cleared it


def as_task(asked: Asked, **fields: Any) -> Task:
    """Return a Task of what is asked. Raises FleetError naming the field at fault."""
    if isinstance(asked, Task) and not fields:
        return asked
    given = asked.model_dump() if isinstance(asked, Task) else {"input": asked} if isinstance(asked, str) else asked
    return _valid(Task, {"task_id": f"task-{uuid.uuid4().hex}", **given, **fields})


def _valid(kind: type[M], fields: Mapping[str, Any]) -> M:
    try:
        return kind(**fields)
    except ValidationError as error:
        raise FleetError(explain(kind.TYPE, error)) from None
