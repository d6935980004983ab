"""How long a token lives, as a person types it: 90s, 30m, 8h, 1d. Pure."""

from __future__ import annotations

import re

from ratchet.cli.terminal.exit_codes import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> int:
    """Raises UsageError."""
    match = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no lifetime: a number and s, m, h or d, as in 30m or 8h")
    return int(match[1]) * UNITS[match[2]]
