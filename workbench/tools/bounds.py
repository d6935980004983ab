"""Make an answer small enough for a model to read: long texts are cut, long lists thinned, and it is said where.

Types, field names and the items of a page stay, so a bounded answer still fits its schema. Not a summary: nothing is
judged to be important.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_CHARACTERS = 48_000
"""The length of an answer as JSON: about 12,000 tokens."""
STEPS: tuple[tuple[int, int], ...] = ((8_000, 400), (2_000, 200), (1_000, 100), (500, 50), (200, 25), (100, 10))
"""Longest text (characters) and longest list, tried in this order until the whole fits."""
PAGE = "items"
"""The list of a page is never thinned: its cursor goes on after the last item."""


class TooBig(Exception):
    """Even the tersest form does not fit; carries its size in characters."""

    def __init__(self, characters: int) -> None:
        super().__init__(f"{characters} characters")
        self.characters = characters


@dataclass(frozen=True, slots=True)
class Bounded:
    """`cut` names the places (dotted) that are shorter than they were; empty if the answer is whole."""

    value: Any
    text: str
    cut: tuple[str, ...]


def bound_value(value: Any, most: int = MOST_CHARACTERS) -> Bounded:
    """`value` (JSON) with at most `most` characters as compact JSON. Raises TooBig."""
    text = _json(value)
    if len(text) <= most:
        return Bounded(value, text, ())
    for longest_text, longest_list in STEPS:
        cut: list[str] = []
        shorter = _shorten(value, longest_text, longest_list, "", cut)
        text = _json(shorter)
        if len(text) <= most:
            return Bounded(shorter, text, tuple(cut))
    raise TooBig(len(text))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shorten(value: Any, longest_text: int, longest_list: int, place: str, cut: list[str]) -> Any:
    if isinstance(value, str):
        return _cut_text(value, longest_text, place, cut)
    if isinstance(value, Mapping):
        return {
            key: _shorten(inner, longest_text, longest_list, f"{place}.{key}" if place else str(key), cut)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence):
        kept = value if place == PAGE else _thin(value, longest_list, place, cut)
        return [_shorten(inner, longest_text, longest_list, f"{place}[{at}]", cut) for at, inner in enumerate(kept)]
    return value


def _cut_text(text: str, longest: int, place: str, cut: list[str]) -> str:
    if len(text) <= longest:
        return text
    cut.append(place)
    return f"{text[:longest]}… (and {len(text) - longest:,} more characters)"


def _thin(items: Sequence[Any], longest: int, place: str, cut: list[str]) -> Sequence[Any]:
    """Evenly spaced items, the first and the last among them."""
    if len(items) <= longest:
        return items
    cut.append(place)
    return [items[round(at * (len(items) - 1) / (longest - 1))] for at in range(longest)]
