"""Processes of this machine, as tests look for those that they started."""

from __future__ import annotations

from pathlib import Path


def marked(mark: str) -> list[str]:
    """The ids of those that have it in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found
