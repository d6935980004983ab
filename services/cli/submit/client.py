"""A synchronous client of the fleet: tasks in, results out, many in flight, over any number of lost connections.

What it leaves out: it keeps nothing on disk. A task the broker confirmed is answered and logged whether or not
anybody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from types import TracebackType
from typing import Self

from schemas.messages.result import Result
from schemas.messages.task import Task
from services.cli.submit.task_link import TaskLink
from services.cli.terminal import TimedOut

CONFIRM_WINDOW = 256
MOST_OPEN = 4096


class FleetClient:
    """Use as a context manager. Not for several threads at once."""

    def __init__(self, amqp_url: str, namespace: str = "", *, most_open: int = MOST_OPEN, replies: bool = True) -> None:
        self._loop = asyncio.new_event_loop()
        self._link = TaskLink(amqp_url, namespace, self._loop, replies=replies)
        self._most_open = most_open
        self._open: dict[str, None] = {}
        self._loop.call_soon(self._link.connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """Ids of the tasks that were published and are not answered yet."""
        return tuple(self._open)

    def submit(self, tasks: Iterable[Task], *, stall_s: float | None = None) -> Iterator[Result]:
        """One Result per task, in order of arrival; of tasks with the same id, one.

        Raises BrokerUnreachable, CommandError where no fleet ever was, TimedOut when nothing came for `stall_s`.
        """
        source, more = iter(tasks), True
        while True:
            more = more and self._publish_from(source)
            yield from self._take_results()
            if not more and not self._open:
                return
            if not (self._link.results or (more and self._has_room)):
                self._wait(stall_s, self._open_now())

    def publish(self, tasks: Iterable[Task], *, stall_s: float | None = None) -> int:
        """Publish without waiting for answers; returns how many the broker confirmed: all. Raises like `submit`."""
        source, more, count = iter(tasks), True, 0
        while more or self._link.unconfirmed:
            more = more and self._publish_from(source)
            count += len(self._open)
            self._open.clear()
            if self._link.unconfirmed or not self._link.ready:
                self._wait(stall_s, f"{len(self._link.unconfirmed)} not confirmed by the broker")
        return count

    def listen(self, seconds: float) -> list[Result]:
        """What came of tasks that were published, within so many seconds. Raises BrokerUnreachable, CommandError.

        Whoever does not wait for answers calls it often: the connection lives by it.
        """
        self._changed_within(seconds)
        came = list(self._link.results)
        self._link.results.clear()
        return came

    def close(self) -> None:
        """Disconnect. Open tasks go on; `ratchet result` shows their answers."""
        if self._loop.is_closed():
            return
        self._link.changed.clear()
        self._link.close()
        self._loop.run_until_complete(_at_most(self._link.changed.wait(), 5.0))
        for unfinished in asyncio.all_tasks(self._loop):  # a connection that was still being made
            unfinished.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _open_now(self) -> str:
        if not self._open:
            return "not even a connection to the broker"
        return f"{len(self._open)} open, the oldest {next(iter(self._open))}"

    @property
    def _has_room(self) -> bool:
        link = self._link
        return link.ready and len(link.unconfirmed) < CONFIRM_WINDOW and len(self._open) < self._most_open

    def _publish_from(self, source: Iterator[Task]) -> bool:
        """Publish while there is room; False when the source is spent."""
        while self._has_room:
            task = next(source, None)
            if task is None:
                return False
            self._open[task.task_id] = None
            self._link.publish(task)
        return True

    def _take_results(self) -> Iterator[Result]:
        while self._link.results:
            result = self._link.results.popleft()
            if result.task_id in self._open:
                del self._open[result.task_id]
                yield result

    def _wait(self, stall_s: float | None, open_: str) -> None:
        if not self._changed_within(stall_s):
            raise TimedOut(f"nothing came for {stall_s:g} s ({open_}): see `ratchet status`")

    def _changed_within(self, seconds: float | None) -> bool:
        """Whether anything came, by when this returns. Raises what ended the connection."""
        self._link.changed.clear()
        came = self._loop.run_until_complete(_at_most(self._link.changed.wait(), seconds))
        if self._link.fault:
            raise self._link.fault
        return came


async def _at_most(wait: Awaitable[object], timeout_s: float | None) -> bool:
    try:
        await asyncio.wait_for(wait, timeout_s)
    except TimeoutError:
        return False
    return True
