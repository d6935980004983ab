"""Which dead letters are meant. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.bus.dead_letters.letter import DeadLetter


@dataclass(frozen=True, slots=True)
class Selection:
    """Those that fit all that is given: one of `ids`, the `queue` they failed in (as on the wire), a part of their
    reason, in whatever case. With nothing given it is all of them."""

    ids: frozenset[str] = frozenset()
    queue: str | None = None
    matching: str | None = None

    def __call__(self, letter: DeadLetter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and self.queue in (None, letter.queue)
            and (self.matching or "").casefold() in letter.reason.casefold()
        )
