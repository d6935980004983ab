"""Lines that are chained: each says the sha256 of the one before, so a changed, removed or inserted line is found.

A line is the canonical JSON of an object: keys sorted, no spaces, UTF-8, as Python's json writes numbers. Its `sha256`
is over the same without that field. Only the removal of the newest lines can't be seen in the chain itself. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

NOTHING_BEFORE = "0" * 64


class Link(NamedTuple):
    """A line's number, from 1 on, and its sha256."""

    sequence: int = 0
    sha256: str = NOTHING_BEFORE


def canonical(fields: Mapping[str, Any]) -> bytes:
    """One way only to write a JSON object. Raises ValueError for NaN, infinity and lone surrogates."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def content_sum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({key: value for key, value in fields.items() if key != "sha256"})).hexdigest()


def chain_line(
    before: Link, fields: Mapping[str, Any], signed: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> tuple[Link, bytes]:
    """The line that follows, without its newline; `signed` adds a signature. Raises ValueError as `canonical` does."""
    content = {**fields, "sequence": before.sequence + 1, "previous_sha256": before.sha256}
    content = signed(content) if signed else content
    content["sha256"] = content_sum(content)
    return Link(before.sequence + 1, content["sha256"]), canonical(content)


def follow(before: Link | None, line: bytes) -> tuple[Link, dict[str, Any]]:
    """The link and the content of a line, which must be exactly what was written after `before` (None: whatever).

    Raises ValueError saying what is wrong with it.
    """
    try:
        fields = json.loads(line)
        if canonical(fields) != line or content_sum(fields) != fields["sha256"]:
            raise ValueError("its content does not give its sha256")
        link = Link(int(fields["sequence"]), str(fields["sha256"]))
        previous = fields["previous_sha256"]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no line of a chain ({type(error).__name__})") from None
    if before is not None and (previous, link.sequence) != (before.sha256, before.sequence + 1):
        raise ValueError("it does not follow the line before it")
    return link, fields
