"""A dead letter: what it is, why it is here and where it came from, read from its properties; and lists of them. Pure.

There are two kinds: those our services wrote say all in `x-ratchet-…` headers; those the broker moved (a message that
killed its consumers, or was too old) have its `x-death` record.

A list's order holds from look to look. The broker has no such order: what was held for a look comes back into the queue
in any. So a page begins after a place, which is made of the letter itself: letters that left or came since do no harm
to it. Leaves out the bodies.
"""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

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


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the letters that fit all that is given; with nothing given, all of them.

    They fit one of `ids`, the `queue` they failed in (as on the wire), or a part of their reason, in whatever case.
    """

    ids: frozenset[str] = frozenset()
    queue: str | None = None
    matching: str | None = None

    def __call__(self, letter: DeadLetter) -> bool:
        return (
            (not self.ids or letter.id in self.ids)
            and self.queue in (None, letter.queue)
            and (self.matching or "").casefold() in letter.reason.casefold()
        )


AT_CHARS = 26
"""Characters of `at` in a place: down to the microsecond. Outsiders' values may be of any length."""


class Place(NamedTuple):
    """`nth`: which of those that are alike in all, from 0."""

    at: str
    id: str
    nth: int


@dataclass(frozen=True, slots=True)
class Listing:
    """One look into the queue: its letters, the oldest first, and `total`, how many were in it at that moment.

    `read_at` is in seconds of a monotonic clock. There are fewer letters than `total` if the look was cut short.
    """

    letters: tuple[DeadLetter, ...]
    places: tuple[Place, ...]
    total: int
    read_at: float

    @property
    def is_whole(self) -> bool:
        return len(self.letters) == self.total

    def page(self, after: Place | None, limit: int) -> tuple[list[DeadLetter], Place | None]:
        """Return at most `limit` letters after the place, and the place of the last of them; None where nothing
        follows."""
        begin = 0 if after is None else bisect_right(self.places, after)
        end = begin + limit
        following = self.places[end - 1] if end < len(self.places) else None
        return list(self.letters[begin:end]), following


def listing(letters: Iterable[DeadLetter], total: int, read_at: float) -> Listing:
    alike = Counter[tuple[str, str]]()
    placed: list[tuple[Place, DeadLetter]] = []
    for letter in letters:
        key = str(letter.at or "")[:AT_CHARS], letter.id
        placed.append((Place(*key, alike[key]), letter))
        alike[key] += 1
    placed.sort(key=lambda one: one[0])
    return Listing(tuple(one for _, one in placed), tuple(place for place, _ in placed), total, read_at)
