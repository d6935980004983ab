"""Refusals for the audit, so that whoever is refused again and again fills no disk.

The first refusal of a caller is a line; further ones within a minute are counted, and one line tells how many. At most
a hundred callers are told apart at a time; the rest count together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WINDOW_S = 60.0
MOST_CALLERS = 100

Entry = dict[str, Any]
Key = tuple[str, int]
OTHERS: Key = ("others", 0)


@dataclass(slots=True)
class _Window:
    first: Entry
    more: int = 0


class Refusals:
    """`note` takes the lines. Use it from one event loop."""

    def __init__(self, note: Callable[[Entry], None], *, window_s: float = WINDOW_S) -> None:
        self._note = note
        self._window_s = window_s
        self._windows: dict[Key, _Window] = {}

    def refused(self, entry: Entry) -> None:
        """`entry` has `who` or, without a token that counts, `from`; and `status`."""
        key = (str(entry.get("who") or entry.get("from")), int(entry["status"]))
        if key not in self._windows and len(self._windows) >= MOST_CALLERS:
            key = OTHERS
        if window := self._windows.get(key):
            window.more += 1
            return
        self._windows[key] = _Window(entry)
        self._note({"event": "refused", **entry})
        asyncio.get_running_loop().call_later(self._window_s, self._end, key)

    def close(self) -> None:
        """Tell what was only counted so far."""
        for key in list(self._windows):
            self._end(key)

    def _end(self, key: Key) -> None:
        window = self._windows.pop(key, None)
        if window is not None and window.more:
            told = {"who": "others"} if key == OTHERS else window.first
            self._note({"event": "refused_again", **told, "times": window.more})
