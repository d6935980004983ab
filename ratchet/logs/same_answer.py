"""Tells whether two answers say the same, for a vote: by their JSON where they are JSON, else by their lines. Pure.

JSON is compared by its values, whatever its spaces, the order of an object's members, its escapes, and whether a whole
number is written 2, 2.0 or 2e0; what is no JSON by the letter (a name that is there twice, NaN, a number no double can
hold) is text. Text is compared in Unicode's form NFC, without the white space around it, without the spaces that end a
line, whatever ends its lines; one that heaps marks upon a letter is compared by its characters. Capitals, punctuation
and the spaces that other lines begin with count: in a program they mean something. An answer that explains itself is
equal to no other: have the task ask for the bare answer.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

MOST_MARKS = 30
"""One after the other. To order them takes time by the square of their number; Unicode's stream-safe format has as many
at most."""
HIDDEN_MARKS = "\u0344\u0f73\u0f75\u0f81"
"""Each is made of two."""


def meaning(text: str) -> str:
    """Equal for answers that say the same."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refused, parse_float=_number)
        return f"json {json.dumps(value, sort_keys=True, separators=(',', ':'), allow_nan=False)}"
    except (ValueError, RecursionError):
        return f"text {_plain(text)}"


def _plain(text: str) -> str:
    normal = text if _heaps_marks(text) else unicodedata.normalize("NFC", text)
    return "\n".join(line.rstrip() for line in normal.splitlines()).strip()


def _heaps_marks(text: str) -> bool:
    if text.isascii():
        return False
    marks = 0
    for letter in text:
        marks = marks + 1 if unicodedata.combining(letter) or letter in HIDDEN_MARKS else 0
        if marks > MOST_MARKS:
            return True
    return False


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a name is there twice")
    return found


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
