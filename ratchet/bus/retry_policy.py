"""Decides what becomes of a message whose handler failed, and how long to pause before trying again. Pure.

It knows no bus and no clock; the random part of a pause is given in. The queues of the ladder are declared with the
topology's others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.files.append_file import unavailable
from ratchet.service.errors import BusError, Reject, Retry, StorageUnavailable

MAX_BYTES = "x-max-length-bytes"
MAX_ATTEMPTS = 8
"""Times a message is handled before it goes to the dead letters."""

ATTEMPT = "x-ratchet-attempt"
REASON = "x-ratchet-reason"
QUEUE = "x-ratchet-queue"
ATTEMPTS = "x-ratchet-attempts"
AT = "x-ratchet-at"
BY = "x-ratchet-by"
NOTE = "x-ratchet-note"
"""The header that says what of the message was left out when it was sent on."""

LONGEST_REASON = 1000
"""Characters of a reason or a note: it stands in a header, and what it quotes may be an outsider's."""

SENT_BY = "x-ratchet-user"
"""The header that names the user who published a message that was sent on: the broker takes no other user's name."""

_ROUTES = ("CC", "BCC")
"""The broker sends a copy wherever these say, each time the message is published."""
_BROKER_OWN = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count", "x-opt-")


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the retry ladder: a topic exchange and a queue of one name, whose messages return after `delay_ms`.

    A message enters with the failing queue's name as its routing key and leaves through the default exchange, so only
    that queue sees it again. A topic exchange, because there the broker can tell a user which routing keys it may use.
    """

    name: str
    delay_ms: int
    max_bytes: int = 200_000_000
    """The bound of its queue; the topology gives it a hundredth of the broker's disk."""

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "x-queue-type": "quorum",
            MAX_BYTES: self.max_bytes,
            "x-overflow": "reject-publish",
            "x-message-ttl": self.delay_ms,
            "x-dead-letter-exchange": "",
            "x-dead-letter-strategy": "at-least-once",
        }


RETRY_LADDER = (Rung("retry.5s", 5_000), Rung("retry.30s", 30_000), Rung("retry.5m", 300_000))
"""Beyond the last rung a message stays on it."""


@dataclass(frozen=True, slots=True)
class Climb:
    """Wait on this rung of the ladder, then be handled again."""

    rung: Rung
    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Go to the dead letters, whole, with this reason."""

    reason: str
    attempts: int


def passing(error: Exception) -> Exception | None:
    """Trouble of the broker or of a disk, which passes: the message waits where it is, and no attempt is counted.

    None for what may be the message's own fault.
    """
    return error if isinstance(error, (BusError, StorageUnavailable)) else unavailable(error)


def after_failure(error: Exception, attempt: int, ladder: tuple[Rung, ...] = RETRY_LADDER) -> Climb | GiveUp:
    """`attempt` is how often the message was sent up the ladder before: 0 the first time it is handled."""
    handled = attempt + 1
    if isinstance(error, Reject):
        return GiveUp(sentence(error), handled)
    if handled >= MAX_ATTEMPTS:
        return GiveUp(f"still failing after {handled} attempts; the last: {sentence(error)}", handled)
    return Climb(ladder[min(attempt, len(ladder) - 1)], handled)


def sentence(error: BaseException) -> str:
    """Return the error's message, with the name of its class where that is not one of ours to raise."""
    text = str(error) or "no reason given"
    return shorten_reason(text if isinstance(error, (Reject, Retry)) else f"{type(error).__name__}: {text}")


def shorten_reason(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


def attempt_of(headers: Mapping[str, Any]) -> int:
    """Return the attempt that the header counts, 0 or more; an outsider may have written anything into it."""
    attempt = headers.get(ATTEMPT, 0)
    return attempt if isinstance(attempt, int) and 0 <= attempt <= MAX_ATTEMPTS else 0


def travels(name: str) -> bool:
    """False for a header the broker keeps by itself or routes by, which must not be published again."""
    return name not in _ROUTES and not name.startswith(_BROKER_OWN)


def is_routing(name: str) -> bool:
    return name in _ROUTES


def retry_headers(attempt: int) -> dict[str, Any]:
    """Return what is added to a message on its way up the ladder."""
    return {ATTEMPT: attempt}


def dead_letter_headers(verdict: GiveUp, *, queue: str, at: str, by: str) -> dict[str, Any]:
    """Return what is added to a dead letter.

    `at` is an ISO 8601 time in UTC, `by` the service, `queue` as in the topology.
    """
    return {REASON: verdict.reason, QUEUE: queue, ATTEMPTS: verdict.attempts, AT: at, BY: by}


def pause_s(failures: int, *, first_s: float, cap_s: float, random: float) -> float:
    """Doubles with each failure in a row (1, 2, …) up to the cap; `random` in [0, 1) takes up to half of it off."""
    longest = min(cap_s, first_s * 2.0 ** min(failures - 1, 30))
    return longest * (1.0 - random / 2)
