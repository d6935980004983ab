"""Where a page of a list begins that is ordered by one number, the highest first."""

from __future__ import annotations

from ratchet.http.paging import place_of

NEWEST = (1 << 63) - 1
"""Above all of them; the largest number that an index takes."""


def sequence_of(cursor: str | None) -> int | None:
    """Only what has a lower number is on the page; None for the first page. Raises Problem 422."""
    place = place_of(cursor, int)
    return None if place is None else max(0, min(int(place[0]), NEWEST))
