"""Decides which beginnings of prompts are worth memory: those that a second prompt had.

Most prompts share only the beginning with others (a system prompt, example turns). Kept unseen, the ends would fill
whatever room there is for prefixes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

MOST_REMEMBERED = 16_384
"""Beginnings, some 3 MB: two or three new ones come with an ordinary prompt."""


class PromptBeginnings:
    """Counts beginnings by hash, in whole blocks. Two that share a hash cost a block that nobody asks for again."""

    def __init__(self, block: int, most: int = MOST_REMEMBERED) -> None:
        self._block = block
        self._most = most
        self._asked: OrderedDict[int, bool] = OrderedDict()
        """True: by more than one prompt. The one that was asked for last is the last."""

    def note(self, adapter: str | None, ids: Sequence[int]) -> None:
        """A prompt is asked."""
        for beginning in self._hashes(adapter, ids):
            self._asked[beginning] = beginning in self._asked
            self._asked.move_to_end(beginning)
        while len(self._asked) > self._most:
            self._asked.popitem(last=False)

    def shared_tokens(self, adapter: str | None, ids: Sequence[int]) -> int:
        """Tokens at the start that another prompt of this adapter had, too; a multiple of the block."""
        tokens = 0
        for beginning in self._hashes(adapter, ids):
            if not self._asked.get(beginning):
                break
            tokens += self._block
        return tokens

    def _hashes(self, adapter: str | None, ids: Sequence[int]) -> Iterator[int]:
        """Yield the hash of the prompt up to the end of each whole block."""
        before = hash(adapter)
        for start in range(0, len(ids) - self._block + 1, self._block):
            before = hash((before, *ids[start : start + self._block]))
            yield before
