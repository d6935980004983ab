"""The work that is done again and again while the orchestrator runs, each in its own time; and what fails of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ratchet.service.telemetry import Log

log = Log("orchestrator")


def now() -> datetime:
    return datetime.now(UTC)


class Clocks:
    """A clock goes on after any failure; until its next success there is a trouble."""

    def __init__(self, check: Callable[[], None] = lambda: None, pace: float = 1.0) -> None:
        """`check` is asked before each turn: what it raises is the turn's failure. `pace` multiplies every wait."""
        self._check = check
        self._pace = pace
        self._troubles: dict[str, str] = {}
        self._ticking: list[asyncio.Task[None]] = []

    def start(self, name: str, turn: Callable[[], Awaitable[None]], every_s: float, *, first: bool = True) -> None:
        """Its first turn at once, or after the first wait."""
        wait_s = every_s * self._pace

        async def tick() -> None:
            if not first:
                await asyncio.sleep(wait_s)
            while True:
                with self._surviving(name):
                    self._check()
                    await turn()
                await asyncio.sleep(wait_s)

        self._ticking.append(asyncio.create_task(tick(), name=name))

    @property
    def running(self) -> bool:
        return bool(self._ticking)

    def trouble(self) -> str | None:
        """Return what fails, as a sentence; None if all goes well."""
        return next(iter(self._troubles.values()), None)

    async def stop(self) -> None:
        for clock in self._ticking:
            clock.cancel()
        await asyncio.gather(*self._ticking, return_exceptions=True)

    @contextmanager
    def _surviving(self, clock: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            trouble = f"{clock} fails: {error}"
            if self._troubles.get(clock) != trouble:
                log.error(clock, f"{trouble}; it is tried again", exc_info=error)
            self._troubles[clock] = trouble
        else:
            self._troubles.pop(clock, None)
