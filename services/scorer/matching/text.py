"""Answers compared as text: exactly, after normalisation, with partial credit by shared tokens, by a pattern.

Linear time. Patterns come with the task, so RE2 searches them: a hostile one can't stall the scorer, as it can with a
backtracking engine. A time-out on the search does not help there, since compiling `(?:(?:a{1000}){1000}){1000}` alone
takes all memory. The price is RE2's syntax: no look-around, no back-references, and `\\w`, `\\d`, `\\s` mean ASCII
(`\\pL` is any letter).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Any

import re2

from ratchet.service.errors import ScorerError

EDGES = " \t\n\r.,;:!?…'\"`´‘’‚“”„‹›«»()[]{}<>*_~。、，；：！？「」『』（）"
"""Stripped from both ends. Signs that carry meaning stay: - + % $ # / \\ and the like."""

_WORD = re.compile(r"\w+")
_ARTICLES = frozenset(("a", "an", "the"))


def exact(answer: str, reference: str) -> float:
    """1 if they are the same code points, white space at the ends aside (models end with a newline), else 0."""
    return float(answer.strip() == reference.strip())


def equal_normalised(answer: str, reference: str) -> float:
    """1 if they are the same after `normalise`, else 0."""
    return float(normalise(answer) == normalise(reference))


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over the multisets of words, in [0, 1].

    The F1 of SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250): case, punctuation and English articles do not count.
    Two texts without any word are compared by `equal_normalised`.
    """
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return equal_normalised(answer, reference)
    shared = (given & wanted).total()
    return 2 * shared / (given.total() + wanted.total())


def normalise(text: str) -> str:
    """Unicode NFKC, case folded, runs of white space as one space, `EDGES` off both ends unless nothing would be left.

    Idempotent.
    """
    folded = " ".join(_fold(text).split())
    return folded.strip(EDGES) or folded


def _fold(text: str) -> str:
    """Folding can undo the normal form and the other way round (ͅ, ẛ̣): repeat until neither changes it."""
    while (folded := unicodedata.normalize("NFKC", text.casefold())) != text:
        text = folded
    return text


def _words(text: str) -> Counter[str]:
    return Counter(word for word in _WORD.findall(_fold(text)) if word not in _ARTICLES)


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
