"""Where the commands write: results to stdout, everything else to stderr; JSON without colours or wrapping."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

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


def say(text: str) -> None:
    """A remark on stderr."""
    err.print(text, markup=False)


def say_error(sentence: str) -> None:
    """What went wrong and what to do, in red on stderr."""
    err.print(sentence, style="red", markup=False)
