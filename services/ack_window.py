"""Which deliveries of a channel are settled but not yet acknowledged, and the fewest acks that say so. Pure.

A channel numbers its deliveries 1, 2, 3 …; an ack of several says "all up to this tag", so it may cover the unbroken
run of settled deliveries from the first, and no further.
"""

from __future__ import annotations


class AckWindow:
    """The acks of one channel. A delivery never settled stays unacknowledged: closing the channel requeues it."""

    def __init__(self) -> None:
        self._acked_up_to = 0
        self._acked_beyond: set[int] = set()
        self._settled: set[int] = set()

    def __len__(self) -> int:
        """Settled deliveries whose ack is still owed."""
        return len(self._settled)

    def settle(self, tag: int) -> None:
        """The delivery is done with. Each tag once."""
        self._settled.add(tag)

    def take(self) -> list[tuple[int, bool]]:
        """The acks owed, as (tag, multiple) in the order to send them. They count as sent."""
        settled, beyond = self._settled, self._acked_beyond
        tag, last = self._acked_up_to + 1, 0
        while True:
            if tag in settled:
                settled.remove(tag)
                last = tag
            elif tag in beyond:
                beyond.remove(tag)
            else:
                break
            tag += 1
        self._acked_up_to = tag - 1
        acks = [(last, True)] if last else []
        if settled:
            acks += [(single, False) for single in sorted(settled)]
            beyond |= settled
            settled.clear()
        return acks
