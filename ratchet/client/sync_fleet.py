"""The client without asyncio: AsyncFleet on a loop in its own thread, so that a connection lives while you work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from itertools import islice
from threading import Thread
from typing import Any, Self, TypeVar

from ratchet.client.async_fleet import CONFIRM_WINDOW, Asked, AsyncFleet, Progress, Source
from schemas.messages.result import Result
from schemas.messages.training import TrainRequest

T = TypeVar("T")


class Fleet:
    """AsyncFleet with the same arguments and methods. Not for several threads at once. It reads tasks in yours."""

    def __init__(self, url: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="ratchet-client", daemon=True)
        self._thread.start()
        try:
            self._fleet = self._call(_make(url, options))
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
        source, count = iter(tasks), 0
        while some := list(islice(source, CONFIRM_WINDOW)):
            count += self._call(self._fleet.submit_all(some))
        return count

    def results(self) -> Iterator[Result]:
        return self.batch(())

    def batch(self, tasks: Iterable[Asked]) -> Iterator[Result]:
        source = Source(tasks)
        while (came := self._call(self._fleet.step(source.read(self._fleet.room), more=source.more))) is not None:
            yield from came

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


async def _make(url: str, options: dict[str, Any]) -> AsyncFleet:
    return AsyncFleet(url, **options)
