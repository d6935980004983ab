"""The dead letters for a service: each call opens a connection, looks, sends back or dismisses, and closes it. Blocks.

Call it one at a time: a look holds letters in hand, and another at the same time would not see them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.claim_store import FOLDER, ClaimStore
from ratchet.bus.dead_letters.dismissals import Dismissals
from ratchet.bus.dead_letters.letter import DEAD, DeadLetter, Kind, Listing, Selection
from ratchet.bus.dead_letters.queue import DeadLetterQueue, Held, Stays
from ratchet.bus.retry_policy import MAX_ATTEMPTS

MOST_LISTED = 10_000
BROWSE_S = 10.0
"""Seconds a look may hold letters in hand: a requeue of others waits for it. About a thousand come in a second."""
LISTING_GOOD_FOR_S = 30.0
"""Seconds a look is as good as another, while there are as many letters as then."""


class DeadLetterService:
    """All raise BusError without a broker, DeadLetterError where the queue is not there."""

    def __init__(self, amqp_url: str, namespace: str, kind: Kind = DEAD, *, logs_dir: Path) -> None:
        """`logs_dir` holds the messages no broker takes, to which letters refer, and the dismissed letters."""
        self._amqp_url = amqp_url
        self._store = ClaimStore(logs_dir / FOLDER)
        self.dismissals = Dismissals(logs_dir)
        self._namespace = namespace
        self._kind = kind

    def oldest(self, limit: int) -> tuple[list[DeadLetter], int]:
        """Return at most `limit` letters, and how many there are in all."""
        with self._queue() as queue:
            total = queue.depth()
            return [letter for letter, _ in queue.letters(limit)], total

    def listing(self, known: Listing | None = None) -> Listing:
        """Return as many letters as may be listed, the oldest first: those of `known` if that is recent and nothing
        changed."""
        with self._queue() as queue:
            if known is not None and _holds(known, queue.depth()):
                return known
            return queue.browse(MOST_LISTED, BROWSE_S)

    def find(self, letter_id: str, within_s: float | None = None) -> Held | None:
        """Return the letter with its properties and body, or None if no such letter is there or none came in that
        time."""
        with self._queue() as queue:
            return queue.find(letter_id, within_s)

    def send_back(
        self,
        wanted: Callable[[DeadLetter], bool],
        *,
        one_at_a_time: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> tuple[list[str], list[Stays]]:
        """Ids of those that are back in their queues, confirmed; and those that were wanted and stay."""
        with self._queue() as queue:
            return queue.requeue(wanted, one_at_a_time=one_at_a_time, say=say)

    def dismiss(self, wanted: Selection, who: str, reason: str) -> list[str]:
        """Ids of those that are on disk and no longer in their queue, those of `wanted.ids` that were before too.

        Raises DiskFull, JournalError: those it could not write stay, and the same call again goes on with them.
        """
        with self._queue() as queue:
            gone = queue.dismiss(wanted, lambda held: self.dismissals.keep(held, who, reason))
        if missing := wanted.ids.difference(gone):
            places = self.dismissals.places()
            gone += [letter_id for letter_id in missing if places.get(letter_id) is not None]
        return gone

    def restore(self, letter_ids: Collection[str], who: str, reason: str) -> tuple[list[str], list[Stays]]:
        """Ids of dismissed letters that are back in the queues they failed in, confirmed, those that were before too;
        and those that could not go there. What was never dismissed is in neither.

        A letter is noted as restored once the broker has it. A crash in between has the same call send it once more,
        under the same message id, and every handler is idempotent. Raises DiskFull, JournalError.
        """
        places = self.dismissals.places()
        known = [(letter_id, places[letter_id]) for letter_id in letter_ids if letter_id in places]
        letters = (self.dismissals.read_letter(place) for _, place in known if place is not None)
        with self._queue() as queue:
            sent, stayed = queue.restore(letters, lambda one: self.dismissals.note_restored(one, who, reason))
        return [*(letter_id for letter_id, place in known if place is None), *sent], stayed

    @contextmanager
    def _queue(self) -> Iterator[DeadLetterQueue]:
        with open_connection(self._amqp_url) as connection:
            yield DeadLetterQueue(connection, self._namespace, self._kind, self._store)


def _holds(known: Listing, depth: int) -> bool:
    return depth == known.total and time.monotonic() - known.read_at < LISTING_GOOD_FOR_S


def advice(letter: DeadLetter) -> str:
    """Return what to do about it."""
    if letter.queue is None:
        return "It does not say which queue it was in, so it can't go back by itself: publish its body again by hand."
    if letter.by == "broker":
        return (
            "The broker moved it here. If its consumer died of it, look at that service's log first; then send it back "
            "alone: `ratchet dead-letters requeue --one-at-a-time`."
        )
    if (letter.attempts or 0) >= MAX_ATTEMPTS:
        return f"It failed {letter.attempts} times. Mend what the reason names, then send it back."
    return (
        "It was refused, and will be refused again as it is: have its sender mend it and send it anew, and dismiss "
        "this one. If the reason is about the fleet (an agent, a setting), mend that and send this one back."
    )
