"""Selects dead letters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
