"""How an error of ours leaves the command line: one red sentence and an exit code, a traceback only with --debug."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class FaultsAsSentences(TyperGroup):
    """A group of commands whose errors are sentences."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        from services.cli.console import say_error
        from services.cli.exit_codes import exit_code
        from services.errors import RatchetError

        try:
            return super().invoke(ctx)
        except RatchetError as error:
            if ctx.params.get("debug"):
                raise
            say_error(str(error))
            raise typer.Exit(exit_code(error)) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
