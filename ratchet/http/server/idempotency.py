"""The header Idempotency-Key: the same key again is the same request, not a second one. Pure.

The key becomes the id of what the request makes, so what remembers it is the record of that thing itself.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Header

from ratchet.http.access.roles import Caller
from ratchet.http.problem import Problem

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text unique to this request: sent again with it, the request is not done twice.",
    ),
]


def id_from_key(caller: Caller, route: str, key: str) -> str:
    """Another caller's equal key, or the same on another route, is another id."""
    return "key-" + hashlib.sha256(f"{caller.name}\n{route}\n{key}".encode()).hexdigest()[:32]


def key_reused(what: str) -> Problem:
    """Return the problem for a key that comes again with other content."""
    return Problem(
        422, "Key used before", f"this Idempotency-Key was used for another {what}: take a new key", "key-reused"
    )
