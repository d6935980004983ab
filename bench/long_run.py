"""The progress of a bench that takes minutes, and an early end that keeps its figures."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class EarlyEnd:
    """A flag: `asked` is true once somebody asks for the end."""

    asked = False


@contextmanager
def early_end() -> Iterator[EarlyEnd]:
    """Take the first Ctrl-C or SIGTERM within the block as asking for the end; a second raises KeyboardInterrupt."""
    end = EarlyEnd()

    def ask(number: int, frame: FrameType | None) -> None:
        end.asked = True
        for one in SIGNALS:
            signal.signal(one, signal.default_int_handler)
        log.info("ended early: nothing more is begun or killed; what is in flight is settled, and the books are read")

    before = {one: signal.signal(one, ask) for one in SIGNALS}
    try:
        yield end
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@dataclass
class Pace:
    """The progress of `total` tasks, and about how long the rest takes. `loads`: the machine's, at each report."""

    total: int
    seconds: Callable[[], float] = time.monotonic
    loads: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.seconds()

    def describe(self, done: int) -> str:
        self.loads.append(round(os.getloadavg()[0], 1))
        took_s = self.seconds() - self._began
        left = f"some {took_s / done * (self.total - done) / 60:.0f} min left" if done else "no end in sight yet"
        return f"{done} of {self.total} tasks in {took_s / 60:.1f} min, {left}, load {self.loads[-1]}"

    @property
    def load(self) -> str:
        """The machine's least and greatest load."""
        return f"{min(self.loads)} to {max(self.loads)}" if self.loads else "unknown"
