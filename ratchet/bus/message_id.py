"""Message ids that follow from what the message is about, so that a repeated publish is seen to be one. Pure."""

from __future__ import annotations

import hashlib

from ratchet.bus.amqp.table import is_plain

MAX_BYTES = 255
"""An AMQP short string holds no more; a task id of 200 characters may be 800 bytes of UTF-8."""


def derived_id(task_id: str, event: str) -> str:
    """`<task_id>/<event>`, or where that is over 255 bytes the sha256 of it and as much of its beginning as fits.

    A task id with characters that stand for bytes on the wire is named by its sha256 alone.
    """
    whole = f"{task_id}/{event}"
    encoded = whole.encode()
    if len(encoded) <= MAX_BYTES and is_plain(whole):
        return whole
    digest = hashlib.sha256(encoded).hexdigest()
    if not is_plain(whole):
        return f"#{digest}"
    return f"{encoded[: MAX_BYTES - len(digest) - 1].decode(errors='ignore')}#{digest}"
