"""How a command fails: its exit code and one red sentence, a traceback only with --debug."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

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


INTERRUPTED = 130
"""Of a command that Ctrl-C ended, as a shell has it."""


class FaultsAsSentences(TyperGroup):
    """A group of commands whose errors are sentences."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        from ratchet.cli.terminal.console import say_error
        from ratchet.cli.terminal.errors import exit_code
        from ratchet.service.errors import RatchetError

        try:
            return super().invoke(ctx)
        except RatchetError as error:
            if ctx.params.get("debug"):
                raise
            say_error(str(error))
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
