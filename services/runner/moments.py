"""When the rollouts of a group ended, in the order in which they did, also where the clock is set meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta


class Moments:
    """The clock of one group: the wall clock as it was when the group was taken up, and steady time from there on."""

    def __init__(
        self, wall: datetime, kept: Sequence[datetime] = (), seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """`kept`: when rollouts of the group ended that are there from before; what ends now ended after them."""
        self._from = max((wall, *kept))
        self._seconds = seconds
        self._began = seconds()

    def now(self) -> datetime:
        return self._from + timedelta(seconds=self._seconds() - self._began)
