"""What the exit code of `ratchet` means, and which error of ours becomes which."""

from __future__ import annotations

from enum import IntEnum

from ratchet.service.errors import Ambiguous, BusError, NotFound, RatchetError, SettingsError


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    BROKER_UNREACHABLE = 3
    TIMED_OUT = 4


class CommandError(RatchetError):
    """A command can't do what was asked; the sentence says why and what to type."""


class UsageError(CommandError):
    """What was typed contradicts itself or names something that does not exist."""


class TimedOut(CommandError):
    """What was waited for did not happen in time; it may still happen."""


def exit_code(error: RatchetError) -> ExitCode:
    """The code a command that ended in this error exits with."""
    if isinstance(error, BusError):
        return ExitCode.BROKER_UNREACHABLE
    if isinstance(error, TimedOut):
        return ExitCode.TIMED_OUT
    if isinstance(error, UsageError | SettingsError | NotFound | Ambiguous):
        return ExitCode.USAGE
    return ExitCode.FAILED
