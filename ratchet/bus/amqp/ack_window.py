"""Which deliveries of a channel are settled but not yet acknowledged, and the fewest acks that say so. Pure.

A channel numbers its deliveries 1, 2, 3 …; an ack of several says "all up to this tag", so it may cover the unbroken
run of settled deliveries from the oldest, and no further. Holds no more than what is delivered and not acknowledged.
"""

from __future__ import annotations


class AckWindow:
    """The acks of one channel. A delivery never settled stays unacknowledged: closing the channel requeues it."""

    def __init__(self) -> None:
        self._settled: dict[int, bool] = {}
        """Delivered and not acknowledged, oldest first: is it settled?"""
        self._owed = 0

    def __len__(self) -> int:
        """Settled deliveries whose ack is still owed."""
        return self._owed

    def deliver(self, tag: int) -> None:
        """In the order of the tags."""
        self._settled[tag] = False

    def settle(self, tag: int) -> None:
        """The delivery is done with. Each tag once."""
        self._settled[tag] = True
        self._owed += 1

    def take(self) -> list[tuple[int, bool]]:
        """The acks owed, as (tag, multiple) in the order to send them. They count as sent."""
        owed = [tag for tag, settled in self._settled.items() if settled]
        run = 0
        for oldest, tag in zip(self._settled, owed, strict=False):
            if oldest != tag:
                break
            run += 1
        for tag in owed:
            del self._settled[tag]
        self._owed = 0
        return [(tag, True) for tag in owed[:run][-1:]] + [(tag, False) for tag in owed[run:]]
