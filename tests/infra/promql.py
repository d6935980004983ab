"""Finds the metrics and labels that a PromQL expression names. It is no parser: promtool checks the grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass

WORDS = {"and", "or", "unless", "bool", "offset"}
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
RANGE = re.compile(r"\[[^\]]*\]")
OFFSET = re.compile(r"\boffset\s+\S+\b")
SELECTOR = re.compile(r"\b([a-zA-Z_][a-zA-Z0-9_:]*)\b(?!\s*\()\s*(\{[^}]*\})?")
TEXT = re.compile(r"(\{[^}]*\})|\"[^\"]*\"")
"""A selector, which stays; or a string outside of one, such as an argument of label_replace."""
MATCHER = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*\"[^\"]*\"")


@dataclass(frozen=True)
class Named:
    """The metrics with the labels each is selected by, and the labels series are grouped or joined by."""

    metrics: tuple[tuple[str, frozenset[str]], ...]
    grouping: frozenset[str]


def named(expr: str) -> Named:
    grouping = frozenset(
        label.strip() for group in GROUPING.findall(expr) for label in group.split(",") if label.strip()
    )
    plain = TEXT.sub(lambda text: text[1] or " ", expr)
    plain = OFFSET.sub(" ", RANGE.sub(" ", GROUPING.sub(" ", plain)))
    metrics = tuple(
        (name, frozenset(MATCHER.findall(selector))) for name, selector in SELECTOR.findall(plain) if name not in WORDS
    )
    return Named(metrics, grouping)
