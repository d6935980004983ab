"""Remembers what the gate could not judge: why, and when it is tried again. Pauses grow. Pure; the clocks are given.

In memory alone: after a start of the orchestrator everything that waits is tried at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from ratchet.bus.retry_policy import pause_s
from ratchet.service.errors import one_line
from schemas.api.status import HeldUp

FIRST_S = 30.0
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pause:
    """`until` on the steady clock; `held_up` says it to people, by the clock on the wall."""

    until: float
    held_up: HeldUp


class Pauses:
    """One agent's, by the name of an adapter's version or of a program."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`chance`: a number in [0, 1), of which each pause has its random part."""
        self._clock = clock
        self._seconds = seconds
        self._chance = chance
        self._of: dict[str, Pause] = {}

    def note_failure(self, name: str, why: str) -> float:
        """Seconds until it is to be tried again."""
        tries = 1 + (self._of[name].held_up.tries if name in self._of else 0)
        length = pause_s(tries, first_s=FIRST_S, cap_s=LONGEST_S, random=self._chance())
        again_at = self._clock() + timedelta(seconds=length)
        held_up = HeldUp(name=name, reason=one_line(why), tries=tries, again_at=again_at)
        self._of[name] = Pause(self._seconds() + length, held_up)
        return length

    def is_over(self, name: str) -> bool:
        """Also of what never failed."""
        return name not in self._of or self._seconds() >= self._of[name].until

    def forget(self, name: str) -> None:
        """It was judged."""
        self._of.pop(name, None)

    def among(self, names: Collection[str]) -> list[HeldUp]:
        return [self._of[name].held_up for name in names if name in self._of]
