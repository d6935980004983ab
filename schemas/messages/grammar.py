"""Grammar: the form that an engine held an answer to, as it stands in the log."""

from __future__ import annotations

from pydantic import Field

from schemas.messages.base import Record, Sha256


class Grammar(Record):
    """`text` is in llguidance's dialect of Lark."""

    text: str
    sha256: Sha256 = Field(description="Of the text.")


class SpanGrammar(Grammar):
    """The grammar of some spans of a segment."""

    spans: tuple[int, ...] = Field(min_length=1, description="Their numbers. Each span began the grammar anew.")
