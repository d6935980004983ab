"""The client for asyncio, and the one without it. Each Result of an open task is given once, by `task_id`.

Nothing is kept on disk. A task that the fleet has is answered and logged whether or not anybody waits, and the same
`task_id` sent again gets the same Result.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from threading import Thread
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
MOST_OPEN, MOST_OPEN_OVER_HTTP = 4096, 64
PATIENCE_S, PAUSE_S = 60.0, 0.5
"""Seconds that a lost fleet is waited for, and between two tries. One that was never there is not waited for."""
GATHER_S, CLOSE_S = 0.005, 5.0
"""Results that come within the first are given together, while more tasks than the window are open."""

Asked = Task | str | Mapping[str, Any]
"""A task, what it asks, or the fields of one; a `task_id` is made up where there is none."""
Sent = Task | Feedback | TrainRequest
T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Progress(NamedTuple):
    """Counts of tasks since the client was made. Those that are neither answered nor failed are open."""

    submitted: int = 0
    answered: int = 0
    failed: int = 0


class AsyncFleet:
    """Make it within a running loop, and use it as a context manager. Its arguments are those of docs/client.md."""

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
        self.progress = Progress()
        self.replies, self._stall_s = replies, stall_s
        self.fault: RatchetError | None = None
        """The error that ended the connection for good."""
        self._most_open = most_open or (MOST_OPEN_OVER_HTTP if url.startswith("http") else MOST_OPEN)
        self._open: dict[str, Task] = {}
        self._arrived: list[Result] = []
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._link: Any
        if url.startswith("http"):
            from ratchet.client.http_link import HttpLink

            self._link = HttpLink(url, token, self)
        else:
            from ratchet.client.amqp_link import AmqpLink

            links = {one: AmqpLink(its_url, one, self) for one, its_url in (shards or {}).items()}
            self._link = ShardedLink(links) if links else AmqpLink(url, namespace, self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """Ids of tasks that are not answered yet, in the order in which they were submitted."""
        return tuple(self._open)

    async def submit(self, asked: Asked, **fields: Any) -> str:
        """Submit one task, and return its id once the fleet has it. `fields` are those of a Task."""
        task = as_task(asked, **fields)
        await self.submit_all([task])
        return task.task_id

    async def submit_all(self, tasks: Iterable[Asked]) -> int:
        """Submit them, and return how many, once the fleet has all. `results` gives their Results."""
        count = 0
        for some in chunks(tasks):
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
        for step in self.steps(tasks):
            for result in await step:
                yield result

    def steps(self, tasks: Iterable[Asked]) -> Iterator[Coroutine[Any, Any, list[Result]]]:
        """Yield what to await for the next Results, until no task is open. The tasks are read by who iterates."""
        source, more = iter(tasks), True
        while more or self._open or self._arrived:
            room = max(0, self._room) if more else 0
            some = list(islice(source, room))
            more = more and len(some) == room
            yield self._step(some, more)

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

    async def close(self) -> None:
        """Disconnect. Open tasks go on; `ratchet result`, or the same `task_id` again, gets their answers."""
        for sending in self._sending.values():
            sending.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._link.close()

    def receive(self, result: Result) -> None:
        """Take a Result that the link has. A task that is not open has its own already."""
        if result.task_id in self._open:
            ok, (submitted, answered, failed) = result.status == "ok", self.progress
            self.progress = Progress(submitted, answered + ok, failed + (not ok))
            self._arrived.append(result)  # before it is no longer open: `steps` may look from another thread
            del self._open[result.task_id]
            self._changed.set()

    def fail(self, fault: RatchetError) -> None:
        self.fault = self.fault or fault
        self._changed.set()

    def send_open_again(self) -> None:
        """Submit what is not answered, over another connection."""
        for task in tuple(self._open.values()):
            if task.task_id not in self._sending:
                self._start_sending(task)

    @property
    def _room(self) -> int:
        return min(CONFIRM_WINDOW - len(self._sending), self._most_open - len(self._open))

    async def _step(self, tasks: Iterable[Asked], more: bool) -> list[Result]:
        """Submit the tasks, and wait for Results or, with `more` to come, for room."""
        self._send(tasks)
        enough = max(1, min(CONFIRM_WINDOW, self._most_open) // 4)
        while not self._arrived and self._open and not (more and self._room >= enough):
            await self._wait_for_change(f"{len(self._open)} open, the oldest {next(iter(self._open))}")
        if len(self._open) > CONFIRM_WINDOW:
            await asyncio.sleep(GATHER_S)
        return self._take()

    async def _send_one(self, message: Sent) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._link.send(message)
        except TimeoutError:
            raise TimedOut(f"the fleet did not take it within {self._stall_s:g} s: see `ratchet status`") from None

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
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self.fault is None:
                    await self._changed.wait()
                if self.fault is None:
                    return True  # not whether it is set: another who waits may have cleared it
        if self.fault is not None:
            raise self.fault
        return False


class Fleet:
    """AsyncFleet, its arguments and methods, on a loop in a thread of its own: its connection lives while you work.

    Not for several threads at once. It reads tasks in yours.
    """

    def __init__(self, url: str, **options: Any) -> None:
        async def make() -> AsyncFleet:
            return AsyncFleet(url, **options)

        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="ratchet-client", daemon=True)
        self._thread.start()
        try:
            self._fleet = self._call(make())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def progress(self) -> Progress:
        return self._fleet.progress

    @property
    def open_tasks(self) -> tuple[str, ...]:
        return self._fleet.open_tasks

    def submit(self, asked: Asked, **fields: Any) -> str:
        return self._call(self._fleet.submit(asked, **fields))

    def submit_all(self, tasks: Iterable[Asked]) -> int:
        return sum(self._call(self._fleet.submit_all(some)) for some in chunks(tasks))

    def results(self) -> Iterator[Result]:
        return self.batch(())

    def batch(self, tasks: Iterable[Asked]) -> Iterator[Result]:
        for step in self._fleet.steps(tasks):
            yield from self._call(step)

    def listen(self, seconds: float) -> list[Result]:
        return self._call(self._fleet.listen(seconds))

    def feedback(self, task_id: str, score: float, **fields: Any) -> str:
        return self._call(self._fleet.feedback(task_id, score, **fields))

    def train(self, request: TrainRequest) -> None:
        self._call(self._fleet.train(request))

    def close(self) -> None:
        """Disconnect; a second time does nothing."""
        if not self._loop.is_closed():
            self._call(self._fleet.close())
            self._stop()

    def _call(self, asked: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return waiting.result()
        except BaseException:  # Ctrl-C too: what it waited for goes to nobody else
            waiting.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def chunks(tasks: Iterable[Asked]) -> Iterator[list[Asked]]:
    source = iter(tasks)
    return iter(lambda: list(islice(source, CONFIRM_WINDOW)), [])


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
