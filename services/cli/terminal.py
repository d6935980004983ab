"""Writes, fails and exits for every command.

Results go to stdout, everything else to stderr; JSON without colours or wrapping. A command that fails has an exit code
and one red sentence, a traceback only with --debug.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from ratchet.service.errors import FAULTS, Ambiguous, BusError, NotFound, RatchetError, SettingsError, TimedOut
from workbench.errors import PolicyError

if TYPE_CHECKING:
    from rich.progress import Progress


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    BROKER_UNREACHABLE = 3
    TIMED_OUT = 4


class CommandError(RatchetError):
    """A command can't do what was asked; the sentence says why and what to type."""


class UsageError(CommandError):
    """The command line contradicts itself or names something that does not exist."""


def exit_code(error: Exception) -> ExitCode:
    """The code a command that ended in this error exits with."""
    if isinstance(error, BusError):
        return ExitCode.BROKER_UNREACHABLE
    if isinstance(error, TimedOut):
        return ExitCode.TIMED_OUT
    if isinstance(error, UsageError | SettingsError | NotFound | Ambiguous | PolicyError):
        return ExitCode.USAGE
    return ExitCode.FAILED


INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, as a shell has it."""


class FaultsAsSentences(TyperGroup):
    """A group of commands whose errors are sentences."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except FAULTS as error:
            if ctx.params.get("debug"):
                raise
            say_error(f"{error}{_where_else(error)}")
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


def _where_else(error: Exception) -> str:
    """Say how to find another fleet, where none was started here and the broker asked is merely the usual one."""
    if not isinstance(error, BusError) or "RATCHET_AMQP_URL" in os.environ:
        return ""
    from ratchet.bus.amqp.short_connection import BrokerUnreachable
    from services.cli.fleet.folder import FROM_ELSEWHERE, FleetFolder

    asked_blindly = isinstance(error, BrokerUnreachable) and not FleetFolder.here().record_file.exists()
    return f"; no fleet was started here: {FROM_ELSEWHERE}" if asked_blindly else ""


AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
"""The option of every command that can write JSON."""

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON value on stdout; `indent=None` makes it one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=indent, default=str) + "\n")
    sys.stdout.flush()


def print_raw(line: str) -> None:
    """A line on stdout that rich must not touch: answers of models, JSON lines."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_answer(text: str) -> None:
    """Print what a model said, as it is; on a terminal with its control characters written out, which could take it
    over."""
    if sys.stdout.isatty():
        text = "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)
    print_raw(text)


def table(*columns: str, left: int = 1, wraps: Collection[str] | None = None) -> Table:
    """Without lines; the first `left` columns are aligned to that side, the rest, numbers, to the right.

    `wraps`: the columns that give way where the terminal is narrow; all, if not given.
    """
    made = Table(box=None, header_style="dim", pad_edge=False)
    for place, column in enumerate(columns):
        made.add_column(
            Text(column),
            justify="left" if place < left else "right",
            no_wrap=wraps is not None and column not in wraps,
            overflow="fold" if wraps and column in wraps else "ellipsis",
        )
    return made


def number(value: float | None, form: str) -> str:
    """Write it in that form, such as `.3f`; a dash where it is not known."""
    return "–" if value is None else format(value, form)


def answered_bar() -> Progress:
    """Return the bar of tasks that are answered, which nobody sees but at a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("answered"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, disable=not err.is_terminal)


def read_text(file: Path) -> str:
    """Read a file, or stdin where it is named `-`. Raises UsageError."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} can't be read: {error}") from None


def say(text: str) -> None:
    """A remark on stderr."""
    err.print(text, markup=False)


def say_error(sentence: str) -> None:
    """Print what went wrong and what to do, in red on stderr."""
    err.print(sentence, style="red", markup=False)


GAP = "  "
INDENT = 4


class Listing:
    """A cell for each name; what is last may be sentences, which wrap below their row. No cell is read as markup."""

    def __init__(self, *names: str) -> None:
        self._names = [Text(name, "dim") for name in names]
        self._rows: list[list[Text]] = []

    def add(self, *cells: str | Text) -> None:
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | Padding]:
        rows = [self._names, *self._rows]
        widths = [max(row[column].cell_len for row in rows) for column in range(len(self._names))]
        inline = sum(widths) + len(GAP) * (len(widths) - 1) <= options.max_width
        yield _line(self._names if inline else self._names[:-1], widths)
        for row in self._rows:
            yield _line(row if inline else row[:-1], widths)
            if not inline and row[-1].plain:
                yield Padding(row[-1], (0, 0, 0, INDENT), expand=False)


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    """Print a line. What is wider than the terminal goes on in its next line; nothing is cut off."""
    line = Text(overflow="fold")
    for cell, width in zip(cells, widths, strict=False):
        line.append_text(cell).append(" " * (width - cell.cell_len)).append(GAP)
    line.rstrip()
    return line
