"""Opaque cursors: where the next page begins, in a form that a client can only give back. Pure."""

from __future__ import annotations

import base64
import json
from typing import Annotated

from fastapi import Query

from ratchet.http.problem import Fault, Problem

MOST = 200

Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Items on a page, at most.")]

Place = list[str | int]
"""The sort key of the last item of a page."""


def cursor_of(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(cursor: str | None, *shape: type) -> Place | None:
    """The place, whose parts are of these types; None for the first page. Raises Problem for what is no cursor."""
    if cursor is None:
        return None
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(shape):
        fault = Fault(pointer="cursor", detail="not a cursor of this list")
        raise Problem(422, "Not a cursor", "give `next` of the page before, or no cursor", "cursor", faults=[fault])
    return place


NEWEST = (1 << 63) - 1
"""Above all of them; the largest number that an index takes."""


def sequence_of(cursor: str | None) -> int | None:
    """Return the number that all of a page are below; None for the first page. Raises Problem 422."""
    place = place_of(cursor, int)
    return None if place is None else max(0, min(int(place[0]), NEWEST))
