"""Text of the tokens of an answer while they come, at a cost that does not grow with what came before. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ratchet.recorder.parsing import UNFINISHED


class Decoding:
    """What tokens add is the difference of two short texts, with and without it, both from the token before the last
    that ended a character: tokenizers that write a token otherwise at the beginning of a text write both alike.
    """

    def __init__(self, text_of: Callable[[Sequence[int]], str]) -> None:
        self._text_of = text_of
        self._ids: list[int] = []
        self._settled = ""
        self._begin = 0
        """From here on ids are decoded again."""
        self._read = 0
        """Before here they are in the settled text."""

    @property
    def count(self) -> int:
        """Tokens that are in the text."""
        return len(self._ids)

    @property
    def settled(self) -> int:
        """Characters at its beginning that no further token changes."""
        return len(self._settled)

    def add(self, *tokens: int) -> str:
        """The whole text so far. Its end may still change where a character's last bytes are missing."""
        self._ids += tokens
        before = self._text_of(self._ids[self._begin : self._read])
        new = self._text_of(self._ids[self._begin :])[len(before) :]
        if new and not new.endswith(UNFINISHED):
            self._settled += new
            self._begin, self._read, new = self._read, len(self._ids), ""
        return self._settled + new
