"""The tree of everything that can go wrong. Each message says what happened, to what, and what to do about it.

Handlers of messages steer the bus with two of them: `Retry` (later may be better) and `Reject` (never will be).
Any other exception that leaves a handler is a fault of ours and is retried like `Retry`.
"""

from __future__ import annotations

from typing import ClassVar

from workbench.errors import WorkbenchError

LONGEST_REASON = 1000
"""Characters of a reason that quotes what somebody else wrote: it goes into logs and ledgers that are kept."""


def one_line(text: str, most: int = LONGEST_REASON) -> str:
    """The text as a reason may hold it: one printable line that UTF-8 can hold, of at most so many characters."""
    shown = text[: most + 1].encode("utf-8", "backslashreplace").decode()
    shown = "".join(char if char.isprintable() else " " for char in shown)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


class RatchetError(Exception):
    """Root of the tree."""

    problem: ClassVar[tuple[int, str, str] | None] = None
    """Status, title and word over HTTP; None: those of its kind (ratchet/http/problem.py)."""


FAULTS = (RatchetError, WorkbenchError)
"""Errors whose text is a sentence for people: those of the fleet and those of the workbench."""


class SettingsError(RatchetError):
    """A setting is missing or contradicts another; the service does not start."""


class Hung(RatchetError):
    """A service got nowhere with what it had in hand, so it ended, to be started again."""


class NotFound(RatchetError):
    """The thing named does not exist."""


class Ambiguous(RatchetError):
    """The name may be more than one thing: name it whole."""


class TimedOut(RatchetError):
    """The event that was waited for did not happen in time; it may still happen."""


class Retry(RatchetError):
    """The message is fine but can't be handled now: it comes back after the next rung of the retry ladder."""


class Reject(RatchetError):
    """The message can't be handled, now or ever: it goes whole to `dead-letters` with this sentence."""


class BusError(RatchetError):
    """The broker can't be reached or does not take messages. Never the message's fault: no attempt is counted."""


class FleetError(RatchetError):
    """The fleet does not take what a client asks; the sentence says why and what to do."""


class PublishTimeout(BusError):
    """No confirm came within the publish time-out; the message may or may not have arrived."""


class DeadLetterError(RatchetError):
    """Dead letters can't be looked at, or not safely sent back."""


class JournalError(RatchetError):
    """A log can't be written or read."""


class StorageUnavailable(JournalError):
    """A disk takes nothing now. Never the message's fault: it is kept unacked, and no attempt is counted.

    The log is as it was: nothing that was acknowledged is lost, nothing else is in it.
    """


class DiskFull(StorageUnavailable):
    """Space would help."""


class LeadershipLost(StorageUnavailable):
    """Another orchestrator leads now: this process writes nothing more, and ends."""


class LogRemoved(JournalError):
    """That part of a log was removed on purpose, to keep the disk within its bound."""


class EngineError(RatchetError):
    """The model can't answer."""


class PromptRefused(EngineError):
    """The model can't be asked this. No retry mends it: the task is answered as failed."""


class PromptTooLong(PromptRefused):
    """It leaves the model no room to answer."""


class FetchError(RatchetError):
    """A known model can't be fetched; what came so far is kept, unless it is wrong."""


class AdapterError(EngineError):
    """An adapter is missing, broken or does not fit the model."""


class OtherModel(RatchetError):
    """An adapter belongs to another model than the agent runs."""


class ScorerError(RatchetError):
    """The scorer can't be built or asked."""


class NotJudged(RatchetError):
    """The gate learned nothing about the candidate: it is asked again later."""


class RegistryError(RatchetError):
    """The adapter registry or its ledger of decisions can't be read, written or trusted."""


class RegistryConflict(RegistryError):
    """The registry has moved on since it was read: read it again and decide anew."""


class NotAllowed(RegistryError):
    """The registry's rules forbid this move; nothing was written."""


class TrainingError(RatchetError):
    """A training run ended without an adapter; running it again may help."""


class TrainingRefused(TrainingError):
    """The data, or what was asked for, can't be trained on; the sentence says why, with the numbers."""
