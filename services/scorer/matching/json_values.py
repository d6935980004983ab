"""JSON in an answer, read strictly and within bounds, and the share of its fields that are the reference's.

What a strict reader would refuse or read differently from the next one is refused: NaN and Infinity, a key that is
there twice, a number that no double holds. Linear time.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MAX_CHARS = 100_000
MAX_DEPTH = 32
MAX_FIELDS = 5_000
MAX_DIGITS = 400


class NoJson(ValueError):
    """The text holds no JSON that can be graded; the sentence says why."""


class NotJsonAlone(NoJson):
    """The text is no JSON by its syntax; within it there may be JSON."""


class Found(NamedTuple):
    """A value and whether the text is that value and nothing else."""

    value: Any
    alone: bool


def find(text: str) -> Found:
    """The value in a text: the whole text; else the first object or array, of the fence where there is just one.

    An array counts only where it begins before the first object: of an object that was cut short no part is taken.
    Raises NoJson.
    """
    stripped = text.strip()
    if not stripped:
        raise NoJson("the answer is empty")
    try:
        return Found(read(stripped), alone=True)
    except NotJsonAlone as error:
        fault = error
    parts = stripped.split("```")
    inner = parts[1] if len(parts) == 3 else stripped
    for start in _starts(inner):
        try:
            return Found(_decode(inner[start:], whole=False), alone=False)
        except NotJsonAlone:
            continue
    raise fault


def _starts(text: str) -> list[int]:
    brace, bracket = text.find("{"), text.find("[")
    return [at for at in (bracket if bracket < brace or brace < 0 else -1, brace) if at >= 0]


def read(text: str) -> Any:
    """The value of a text that is JSON and nothing else. Raises NoJson."""
    if len(text) > MAX_CHARS:
        raise NoJson(f"it has {len(text):,} characters; of JSON {MAX_CHARS:,} are read")
    return _decode(text, whole=True)


def _decode(text: str, *, whole: bool) -> Any:
    try:
        return _check_bounds(_DECODER.decode(text) if whole else _DECODER.raw_decode(text)[0])
    except json.JSONDecodeError as error:
        raise NotJsonAlone(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise NoJson(f"nested deeper than {MAX_DEPTH}") from None


def _check_bounds(value: Any) -> Any:
    list(_leaves(value, ""))
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise NoJson(f"the key {_quote(twice)} is there twice")
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NoJson(f"a number has {len(digits):,} digits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise NoJson(f"the number {_quote(digits)} is too large")
    return value


def _constant(name: str) -> Any:
    raise NoJson(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)


class Share(NamedTuple):
    """Fields by where they are (JSON pointers): `right` are equal in both, `wrong` differ, `missing` and `extra` are in
    one alone."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def score(self) -> float:
        """Right fields over all that are in either, in [0, 1]: what is too much costs as much as what is missing."""
        return len(self.right) / sum(map(len, self))


def compare(given: Any, wanted: Any) -> Share:
    """A field is a value that is no object and no array, or an empty one; items of an array are told by position."""
    mine, theirs = fields(given), fields(wanted)
    shared = [place for place in theirs if place in mine]
    return Share(
        right=tuple(place for place in shared if _equal(mine[place], theirs[place])),
        wrong=tuple(place for place in shared if not _equal(mine[place], theirs[place])),
        missing=tuple(place for place in theirs if place not in mine),
        extra=tuple(place for place in mine if place not in theirs),
    )


def fields(value: Any) -> Mapping[str, Any]:
    return dict(_leaves(value, ""))


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Raises NoJson beyond the bounds. Walked with a list for a stack, so that no depth is too deep for it."""
    waiting: list[tuple[str, Any, int]] = [(place, value, 0)]
    count = 0
    while waiting:
        at, one, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise NoJson(f"nested deeper than {MAX_DEPTH}")
        members = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        if members and one:
            waiting += reversed([(f"{at}/{_escape(key)}", inner, depth + 1) for key, inner in members])
            continue
        count += 1
        if count > MAX_FIELDS:
            raise NoJson(f"it has more than {MAX_FIELDS:,} fields")
        yield at, one


def _escape(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _equal(given: Any, wanted: Any) -> bool:
    """Compare as JSON Schema does: 1 equals 1.0 and not true; texts are equal by code point."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    return bool(given == wanted)


def _quote(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
