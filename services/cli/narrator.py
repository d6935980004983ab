"""Tells the demo's story while it happens: a spinner on a terminal, elsewhere a line when something changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

QUIET_S = 5.0


class Narrator:
    """Tells what goes on. Where there is no terminal, a live line is printed when its `key` changes, else every
    `quiet_s` at most.

    `left` is asked for the seconds that are left, which headings and live lines then show.
    """

    def __init__(self, console: Console, *, left: Callable[[], float] | None = None, quiet_s: float = QUIET_S) -> None:
        self._console = console
        self._left = left
        self._quiet_s = quiet_s
        self._began = time.monotonic()
        self._status: Status | None = None
        self._key: object = None
        self._printed = 0.0

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._began

    def heading(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold] [dim]({self.seconds:.0f} s{self._time_left()})[/dim]")

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False)

    @contextmanager
    def waiting(self, text: str, key: object = None) -> Iterator[None]:
        """Show a wait within the block; `show` changes its text."""
        self._key = key
        self._printed = time.monotonic()
        if not self._console.is_terminal:
            self.say(f"{text} …")
            yield
            return
        with self._console.status(text) as self._status:
            yield
        self._status = None

    @contextmanager
    def counting(
        self, count: int, progress: Callable[[float], None] = lambda done: None
    ) -> Iterator[Callable[[], None]]:
        """Count so many tasks within the block: call what is yielded at each answer. `progress` is told the share
        that is answered."""
        answered = 0

        def advance() -> None:
            nonlocal answered
            answered += 1
            progress(answered / count)
            self.show(f"{answered} of {count} answered", answered * 4 // count)

        with self.waiting("asking", key=0):
            yield advance

    def show(self, text: str, key: object) -> None:
        text += self._time_left()
        if self._status is not None:
            self._status.update(text)
        elif key != self._key or time.monotonic() - self._printed > self._quiet_s:
            self.say(text)
            self._printed = time.monotonic()
        self._key = key

    def _time_left(self) -> str:
        if self._left is None:
            return ""
        minutes = self._left() / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"
