"""The client for asyncio, and the one without it. Each Result of an open task is given once, by `task_id`.

Nothing is kept on disk. A task that the fleet has is answered and logged whether or not anybody waits, and the same
`task_id` sent again gets the same Result.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from anyio.from_thread import start_blocking_portal
from pydantic import ValidationError

from ratchet.service.errors import FleetError, RatchetError, TimedOut
from schemas.messages.base import DecodeError, Message, explain
from schemas.messages.feedback import Feedback
from schemas.messages.result import Result
from schemas.messages.task import Task
from schemas.messages.training import TrainRequest

CONFIRM_WINDOW = 256
MOST_OPEN, MOST_OPEN_OVER_HTTP = 4096, 64
RECONNECT_S, PAUSE_S = 60.0, 0.5
"""Seconds that a client waits for a lost fleet, and between two tries; one that was never reached fails at once."""
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


class AsyncFleet(AbstractAsyncContextManager["AsyncFleet"]):
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
        self.refusing: str | None = None
        """The queue that refused the newest message, which is sent again until it is taken."""
        self._most_open = most_open or (MOST_OPEN_OVER_HTTP if url.startswith("http") else MOST_OPEN)
        self._open: dict[str, Task] = {}
        self._arrived: list[Result] = []
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        if url.startswith("http"):
            from ratchet.client.http_link import HttpLink

            self._links: dict[str, Any] = {namespace: HttpLink(url, token, self)}
        else:
            from ratchet.client.amqp_link import AmqpLink

            self._links = {one: AmqpLink(at, one, self) for one, at in (shards or {namespace: url}).items()}

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
            self._send_all(some)
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
            for result in await step():
                yield result

    def steps(self, tasks: Iterable[Asked]) -> Iterator[Callable[[], Coroutine[Any, Any, list[Result]]]]:
        """Yield what gives the next Results, until no task is open. The tasks are read by who iterates."""
        source, more = iter(tasks), True
        while more or self._open or self._arrived:
            some = list(islice(source, room := max(0, self._room())))
            more = more and len(some) == room
            yield partial(self._step, some, more)

    async def listen(self, seconds: float) -> list[Result]:
        """Return the Results that came, waiting at most so long for the first. Raises BusError, FleetError."""
        if not self._arrived:
            await self._is_changed_within(seconds)
        came, self._arrived = self._arrived, []
        return came

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
        await asyncio.wait([asyncio.create_task(link.close()) for link in self._links.values()], timeout=CLOSE_S)

    def receive(self, body: bytes) -> None:
        """Take a Result that a link has. A task that is not open has its own already."""
        try:
            result = Result.decode(body)
        except DecodeError as error:
            self.fail(FleetError(f"the fleet answered with something that is no result: {error}"))
            return
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

    def _room(self) -> int:
        return min(CONFIRM_WINDOW - len(self._sending), self._most_open - len(self._open))

    async def _step(self, tasks: Iterable[Asked], more: bool) -> list[Result]:
        """Submit the tasks, and wait for Results or, with `more` to come, for room."""
        self._send_all(tasks)
        enough = max(1, min(CONFIRM_WINDOW, self._most_open) // 4)
        while not self._arrived and self._open and not (more and self._room() >= enough):
            await self._wait_for_change(f"{len(self._open)} open, the oldest {next(iter(self._open))}")
        if len(self._open) > CONFIRM_WINDOW:
            await asyncio.sleep(GATHER_S)
        return await self.listen(0.0)

    async def _send_one(self, message: Sent) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._send(message)
        except TimeoutError:
            why = f" ({refusal})" if (refusal := self._refusal()) else ""
            raise TimedOut(f"the fleet did not take it within {self._stall_s:g} s{why}: see `ratchet status`") from None

    async def _send(self, message: Sent) -> None:
        await self._links[fleet_of(message, self._links)].send(message)

    def _send_all(self, tasks: Iterable[Asked]) -> None:
        for task in map(as_task, tasks):
            if task.task_id not in self._open:
                self.progress = self.progress._replace(submitted=self.progress.submitted + 1)
                if self.replies:
                    self._open[task.task_id] = task
                self._start_sending(task)

    def _start_sending(self, task: Task) -> None:
        self._sending[task.task_id] = sending = asyncio.create_task(self._send(task), name=task.task_id)
        sending.add_done_callback(self.on_sent)

    def on_sent(self, sending: asyncio.Task[None]) -> None:
        self._sending.pop(sending.get_name(), None)
        self._changed.set()
        if not sending.cancelled() and (error := sending.exception()):
            self.fail(error if isinstance(error, RatchetError) else FleetError(f"a task can't be sent: {error!r}"))

    async def _wait_for_change(self, waiting: str) -> None:
        if not await self._is_changed_within(self._stall_s):
            why = f"; {refusal}" if (refusal := self._refusal()) else ""
            raise TimedOut(f"nothing came for {self._stall_s:g} s ({waiting}{why}): see `ratchet status`")

    def _refusal(self) -> str:
        return f"the queue {self.refusing!r} refuses messages: it is full or has no leader" if self.refusing else ""

    async def _is_changed_within(self, seconds: float | None) -> bool:
        """Raises what ended the connection."""
        is_changed = False
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                is_changed = self.fault is not None or await self._changed.wait()
        if self.fault is not None:
            raise self.fault
        return is_changed


class Fleet(AbstractContextManager["Fleet"]):
    """AsyncFleet, its arguments and methods, on a loop in a thread of its own: its connection lives while you work.

    Not for several threads at once. It reads tasks in yours.
    """

    def __init__(self, url: str, **options: Any) -> None:
        with ExitStack() as opened:
            self._portal = opened.enter_context(start_blocking_portal(name="ratchet-client"))
            self._fleet = self._portal.call(partial(AsyncFleet, url, **options))
            opened.callback(self._portal.call, self._fleet.close)
            self._opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def progress(self) -> Progress:
        return self._fleet.progress

    @property
    def open_tasks(self) -> tuple[str, ...]:
        return self._fleet.open_tasks

    def submit(self, asked: Asked, **fields: Any) -> str:
        return self._call(self._fleet.submit, asked, **fields)

    def submit_all(self, tasks: Iterable[Asked]) -> int:
        return sum(self._call(self._fleet.submit_all, some) for some in chunks(tasks))

    def results(self) -> Iterator[Result]:
        return self.batch(())

    def batch(self, tasks: Iterable[Asked]) -> Iterator[Result]:
        for step in self._fleet.steps(tasks):
            yield from self._call(step)

    def listen(self, seconds: float) -> list[Result]:
        return self._call(self._fleet.listen, seconds)

    def feedback(self, task_id: str, score: float, **fields: Any) -> str:
        return self._call(self._fleet.feedback, task_id, score, **fields)

    def train(self, request: TrainRequest) -> None:
        self._call(self._fleet.train, request)

    def close(self) -> None:
        """Disconnect; a second time does nothing."""
        self._opened.close()

    def _call(self, method: Callable[..., Coroutine[Any, Any, T]], *given: Any, **fields: Any) -> T:
        waiting: Future[T] = self._portal.start_task_soon(lambda: method(*given, **fields))
        try:
            return waiting.result()
        except BaseException:  # Ctrl-C too: what it waited for goes to nobody else
            waiting.cancel()
            raise


def shard_of(unit_id: str, namespaces: Collection[str]) -> str:
    """Return the namespace of the fleet that has this unit: a session's id, or that of a task without a session.

    It is the one at the place that the first 8 bytes of the id's SHA-256 have modulo their count, among all in order.
    So all tasks of a session are one fleet's, and the units of experiments are in one fleet each (docs/scale.md).
    """
    return sorted(namespaces)[int.from_bytes(hashlib.sha256(unit_id.encode()).digest()[:8], "big") % len(namespaces)]


def fleet_of(message: Sent, namespaces: Collection[str]) -> str:
    """Return the namespace that a message goes to. Raises FleetError for what belongs to one fleet of several."""
    if len(namespaces) == 1:
        return next(iter(namespaces))
    if not isinstance(message, Task):
        raise FleetError(f"{message.TYPE} goes to the fleet that has the task: make a client of its `namespace`")
    return shard_of(message.session_id or message.task_id, namespaces)


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
