"""Dead letters in an order that holds from look to look, and a page of them at a time. Pure.

The broker has no such order: what was held for a look comes back into the queue in any. So a page begins after a
place, which is made of the letter itself: letters that left or came since do no harm to it. Leaves out the bodies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ratchet.bus.dead_letters.letter import DeadLetter


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the letters that fit all that is given; with nothing given, all of them.

    They fit one of `ids`, the `queue` they failed in (as on the wire), or a part of their reason, in whatever case.
    """

    ids: frozenset[str] = frozenset()
    queue: str | None = None
    matching: str | None = None

    def __call__(self, letter: DeadLetter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and self.queue in (None, letter.queue)
            and (self.matching or "").casefold() in letter.reason.casefold()
        )


AT_CHARS = 26
"""Characters of `at` in a place: down to the microsecond. Outsiders' values may be of any length."""


class Place(NamedTuple):
    """`nth`: which of those that are alike in all, from 0."""

    at: str
    id: str
    nth: int


@dataclass(frozen=True, slots=True)
class Listing:
    """One look into the queue: its letters, the oldest first, and `total`, how many were in it at that moment.

    `read_at` is in seconds of a monotonic clock. There are fewer letters than `total` if the look was cut short.
    """

    letters: tuple[DeadLetter, ...]
    places: tuple[Place, ...]
    total: int
    read_at: float

    @property
    def is_whole(self) -> bool:
        return len(self.letters) == self.total

    def page(self, after: Place | None, limit: int) -> tuple[list[DeadLetter], Place | None]:
        """Return at most `limit` letters after the place, and the place of the last of them; None where nothing
        follows."""
        begin = 0 if after is None else bisect_right(self.places, after)
        end = begin + limit
        following = self.places[end - 1] if end < len(self.places) else None
        return list(self.letters[begin:end]), following


def listing(letters: Iterable[DeadLetter], total: int, read_at: float) -> Listing:
    alike = Counter[tuple[str, str]]()
    placed: list[tuple[Place, DeadLetter]] = []
    for letter in letters:
        key = str(letter.at or "")[:AT_CHARS], letter.id
        placed.append((Place(*key, alike[key]), letter))
        alike[key] += 1
    placed.sort(key=lambda one: one[0])
    return Listing(tuple(one for _, one in placed), tuple(place for place, _ in placed), total, read_at)
