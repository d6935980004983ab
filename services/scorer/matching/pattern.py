"""Answers matched against a regular expression that comes with the task, bounded in time whatever the pattern is."""

from __future__ import annotations

import regex

from services.errors import ScorerError

MAX_PATTERN_CHARS = 10_000


class PatternTimeout(ScorerError):
    """The search was stopped; nothing is known about the answer."""


def matches(answer: str, pattern: str, *, timeout_s: float) -> float:
    """1 if the pattern is found anywhere in the answer (anchor it with ^ and $ for the whole of it), else 0.

    Raises ScorerError if it is no pattern, PatternTimeout after `timeout_s`. Call it in a thread: it lets go of the
    interpreter lock while it searches.
    """
    try:
        found = _compile(pattern).search(answer, timeout=timeout_s, concurrent=True)
    except TimeoutError:
        raise PatternTimeout(
            f"the pattern was still searching after {timeout_s:g} s: it backtracks too much, simplify it"
        ) from None
    return float(found is not None)


def _compile(pattern: str) -> regex.Pattern[str]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ScorerError(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are read")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, ValueError) as error:
        raise ScorerError(f"the reference is no regular expression: {error}") from None
