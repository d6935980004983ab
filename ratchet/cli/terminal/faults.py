"""How an error of ours leaves the command line: one red sentence and an exit code, a traceback only with --debug."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

INTERRUPTED = 130
"""Of a command that Ctrl-C ended, as a shell has it."""


class FaultsAsSentences(TyperGroup):
    """A group of commands whose errors are sentences."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        from ratchet.cli.terminal.console import say_error
        from ratchet.cli.terminal.exit_codes import exit_code
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
