"""Text of others as one line of inert JSON: what it says can be read, what it would do to a prompt is gone.

A JSON string holds no line break and no closing quote, so no text gets out of it. On top, whatever a tokenizer may take
for a control token, and whatever a reader would not see, is written as its \\u escape. Ordinary text of any language
stays as it is, so that the judge reads it as well as its author did.
"""

from __future__ import annotations

import json
import re
import unicodedata

_CONTROL_TOKEN = re.compile(r"[<\x7f]|\[(?=/?[A-Z])")
"""The first character of <|im_start|>, </s>, <start_of_turn>, [INST], [/INST], [TOOL_CALLS] …"""

_UNSEEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
"""Unicode categories: control, format (zero-width, bidirectional, tags), unassigned, private, line separators."""

_LOOKALIKES = frozenset("＜＞｜▁\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u180b\u180c\u180d")
"""Full-width brackets and bars of control tokens, and letters that show nothing."""


def inert(text: str) -> str:
    """A JSON string literal, quotes included; `json.loads` gives the text back."""
    quoted = json.dumps(text, ensure_ascii=False)
    visible = quoted if quoted.isascii() else "".join(map(_seen, quoted))
    return _CONTROL_TOKEN.sub(lambda match: _escape(match.group()), visible)


def _seen(character: str) -> str:
    hidden = (
        unicodedata.category(character) in _UNSEEN
        or character in _LOOKALIKES
        or "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
    )
    return _escape(character) if hidden else character


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
