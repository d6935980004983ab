"""One dead letter: what it is, why it is here and where it came from, read from its properties. Pure.

There are two kinds: those our services wrote say all in `x-ratchet-…` headers; those the broker moved (a message that
killed its consumers, or was too old) have its `x-death` record.
"""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from ratchet.bus.amqp.forwarding import CLAIM
from ratchet.bus.amqp.frames import Properties
from ratchet.bus.amqp.table import edit_headers
from ratchet.bus.retry_policy import AT, ATTEMPT, ATTEMPTS, BY, NOTE, QUEUE, REASON, travels
from ratchet.bus.topology import DEAD_LETTERS, UNROUTABLE

SHOWN = 80
BROKER_REASONS = {
    "delivery_limit": "its consumer ended without an answer, again and again: it may kill whoever handles it",
    "expired": "it waited longer than its queue allows",
    "maxlen": "its queue was full",
    "rejected": "a consumer refused it",
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`queue` is the name on the wire of where it was when it failed; None if it does not say. `at` is ISO 8601."""

    id: str
    queue: str | None
    reason: str
    attempts: int | None
    at: str | None
    by: str | None
    type: str | None
    message_id: str | None
    size: int
    beginning: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def dead_letter(properties: Properties, body: bytes, namespace: str) -> DeadLetter:
    """`id` is the same at every look: it is made of the message's id, its type and its body."""
    headers = properties.headers or {}
    death = _last_death(headers)
    known, reason, at, by = (_text(headers.get(name)) for name in (QUEUE, REASON, AT, BY))
    attempts = headers.get(ATTEMPTS) or death.get("count")
    reason = reason or _broker_reason(death)
    if note := _text(headers.get(NOTE)):
        reason = f"{reason} ({note})"
    return DeadLetter(
        id=identity(properties, body),
        queue=namespace + known if known else _text(death.get("queue")),
        reason=reason,
        attempts=attempts if isinstance(attempts, int) else None,
        at=at or _moment(death.get("time")),
        by=by or ("broker" if death else None),
        type=properties.type,
        message_id=properties.message_id,
        size=len(body),
        beginning=beginning(body),
    )


OURS = (REASON, QUEUE, ATTEMPTS, AT, BY, ATTEMPT, NOTE, CLAIM)


def headers_to_go_again(headers: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return its own headers without the reason and time of the failure: it starts with no attempt counted."""
    return edit_headers(headers, lambda name: travels(name) and name not in OURS, {})


def _last_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """The broker's record; outsiders may write anything there."""
    deaths = headers.get("x-death")
    last = deaths[0] if isinstance(deaths, list) and deaths else None
    return last if isinstance(last, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def identity(properties: Properties, body: bytes) -> str:
    named = f"{properties.message_id}\0{properties.type}\0".encode()
    return hashlib.sha256(named + body).hexdigest()[:12]


def _broker_reason(death: Mapping[str, Any]) -> str:
    word = str(death.get("reason", ""))
    return BROKER_REASONS.get(word, word or "it does not say why")


def _moment(at: Any) -> str | None:
    return at.replace(tzinfo=UTC).isoformat() if isinstance(at, datetime) else None


def beginning(body: bytes) -> str:
    text = body[:SHOWN].decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else "·" for char in text)


def text_or_base64(body: bytes) -> tuple[str, Literal["utf-8", "base64"]]:
    """A body for JSON, and what it is written in."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(body).decode(), "base64"


def plain(headers: Mapping[str, Any]) -> dict[str, Any]:
    """AMQP's values as JSON: what JSON does not know becomes text."""
    return {name: _plain(value) for name, value in headers.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    is_json = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_json else str(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """`read` takes the routing key, the properties, the body and the namespace.

    `absent`: why a message stays for whose `{queue}` there is none.
    """

    queue: str
    read: Callable[[str, Properties, bytes, str], DeadLetter]
    headers: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
    absent: str


def _dead(_routing_key: str, properties: Properties, body: bytes, namespace: str) -> DeadLetter:
    return dead_letter(properties, body, namespace)


def _unroutable(routing_key: str, properties: Properties, body: bytes, _namespace: str) -> DeadLetter:
    return DeadLetter(
        id=identity(properties, body),
        queue=routing_key,
        reason=f"it was sent to {routing_key!r}, and there was no such queue",
        attempts=None,
        at=None,
        by=properties.app_id,
        type=properties.type,
        message_id=properties.message_id,
        size=len(body),
        beginning=beginning(body),
    )


DEAD = Kind(DEAD_LETTERS, _dead, headers_to_go_again, "there is no queue {queue} any more")
LOST = Kind(
    UNROUTABLE,
    _unroutable,
    lambda headers: edit_headers(headers, travels, {}),
    "there is no queue {queue}: if that is misspelt, have its sender mend it and send it anew; if its agent is not in "
    "RATCHET_AGENTS, add it and start it",
)
ADVICE_ON_LOST = (
    "There was no queue of that name. If it is misspelt, have its sender mend it and send it anew. If its agent was "
    "not in RATCHET_AGENTS, add and start it, then: `ratchet dead-letters requeue --all --unroutable`."
)
