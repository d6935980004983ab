"""Answers matched against a regular expression that comes with the task, by RE2: linear time, bounded memory.

So a hostile pattern can't stall the scorer, as it can with a backtracking engine: a time-out on the search does not
help there, since compiling `(?:(?:a{1000}){1000}){1000}` alone takes all memory. The price is RE2's syntax: no
look-around, no back-references, and `\\w`, `\\d`, `\\s` mean ASCII (`\\pL` is any letter).
"""

from __future__ import annotations

from typing import Any

import re2

from ratchet.service.errors import ScorerError

MAX_PATTERN_CHARS = 10_000


def matches(answer: str, pattern: str) -> float:
    """1 if the pattern is found anywhere in the answer (anchor it with ^ and $ for the whole of it), else 0.

    Raises ScorerError if it is no RE2 pattern. Seconds for a megabyte at worst, without the interpreter lock: call it
    in a thread.
    """
    return float(_compile(pattern).search(answer) is not None)


def _compile(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ScorerError(f"the reference has {len(pattern)} characters; of a pattern {MAX_PATTERN_CHARS} are read")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ScorerError(f"the reference is no RE2 pattern: {_sentence(error)}") from None


def _sentence(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
