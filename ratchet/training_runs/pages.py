"""Pages of a list of runs, the newest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.http.paging import cursor_of, place_of
from ratchet.training_runs.reader import place_of_run
from schemas.api.page import Page
from schemas.api.runs import RunView


def run_page(views: Sequence[RunView], cursor: str | None, limit: int) -> Page[RunView]:
    """`views` in the order of `place_of_run`, the highest first. Raises Problem for what is no cursor."""
    place = place_of(cursor, str, str)
    rest = [view for view in views if place is None or place_of_run(view) < tuple(place)]
    more = cursor_of(list(place_of_run(rest[limit - 1]))) if len(rest) > limit else None
    return Page(items=rest[:limit], next=more)
