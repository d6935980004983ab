"""Answers compared as text: exactly, after normalisation, and with partial credit by shared tokens. Linear time."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

EDGES = " \t\n\r.,;:!?…'\"`´‘’‚“”„‹›«»()[]{}<>*_~。、，；：！？「」『』（）"
"""Stripped from both ends. Signs that carry meaning stay: - + % $ # / \\ and the like."""

_WORD = re.compile(r"\w+")
_ARTICLES = frozenset(("a", "an", "the"))


def exact(answer: str, reference: str) -> float:
    """1 if they are the same code points, white space at the ends aside (models end with a newline), else 0."""
    return float(answer.strip() == reference.strip())


def normalised(answer: str, reference: str) -> float:
    """1 if they are the same after `normalise`, else 0."""
    return float(normalise(answer) == normalise(reference))


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over the multisets of words, in [0, 1].

    The F1 of SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250): case, punctuation and English articles do not count.
    Two texts without any word are compared by `normalised`.
    """
    given, wanted = _words(answer), _words(reference)
    if not given or not wanted:
        return normalised(answer, reference)
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
