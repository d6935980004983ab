"""The end of an answer that ends at strings: the one rule of the engines, the recorder and the public front. Pure.

Of the sampled tokens those are kept up to the one with which a string was whole, and what is told ends before it. That
is decided by the tokens so far alone, so what is kept is the policy's own, as it was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.messages.base import MOST_STOPS
from schemas.messages.response import Sample

UNFINISHED = "\ufffd"
"""Stands where a character's last bytes are not sampled yet."""


class Decoding:
    """Text of the tokens of an answer while they come, at a cost that does not grow with what came before.

    What tokens add is the difference of two short texts, with and without it, both from the token before the last
    that ended a character: tokenizers that write a token otherwise at the beginning of a text write both alike.
    """

    def __init__(self, text_of: Callable[[Sequence[int]], str]) -> None:
        self._text_of = text_of
        self._ids: list[int] = []
        self._settled = ""
        self._begin = 0
        """The first id that is decoded again."""
        self._read = 0
        """The first id that is not in the settled text."""

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


class Stops:
    """Watches one answer while its tokens come: of the text before only the end is looked at again."""

    def __init__(self, words: Sequence[str], text_of: Callable[[Sequence[int]], str]) -> None:
        """`text_of`: of tokens, as the text is looked at in which the strings are looked for."""
        self._words = words
        self._longest = max(map(len, words))
        self._decoding = Decoding(text_of)
        self._count: int | None = None

    def count(self, ids: Sequence[int]) -> int | None:
        """Return how many of an answer's tokens are kept; None while no string is in it. `ids`: all so far."""
        for token in ids[self._decoding.count :] if self._count is None else ():
            begin = max(0, self._decoding.settled - self._longest + 1)
            text = self._decoding.add(token)
            if any(text.find(word, begin) >= 0 for word in self._words):
                self._count = self._decoding.count
                break
        return self._count


def watch_for(words: Sequence[str] | None, text_of: Callable[[Sequence[int]], str]) -> Stops | None:
    """Return None where nothing is to be looked for."""
    return Stops(words, text_of) if words else None


def cut_at_stop(text: str, words: Sequence[str] | None) -> tuple[str, str | None]:
    """Return what is told of a text, and the string that ended it."""
    end, word = min(find_stops(text, words or ()), default=(len(text), None))
    return text[:end], word


def cut_samples(samples: Sequence[Sample], words: Sequence[str] | None) -> tuple[Sample, ...]:
    """Return samples as they are scored, told and logged, whoever made them: a text ends before the first stop string.

    One that had to be cut loses its tokens, for which of them wrote the rest is not known here, and so teaches nothing.
    What a program printed is its own: the strings are those of its calls of the model.
    """
    return tuple(_cut_sample(sample, words) for sample in samples)


def _cut_sample(sample: Sample, words: Sequence[str] | None) -> Sample:
    told, word = cut_at_stop(sample.text, words if sample.program is None and sample.segments is None else None)
    if word is None:
        return sample
    without = dict.fromkeys(("completion_ids", "logprobs", "token_texts"))
    return sample.model_copy(update={"text": told, "finish_reason": "stop", "stopped_at": word} | without)


def find_stops(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    """Return the first place of each stop string that is in the text."""
    return [(at, word) for word in words if (at := text.find(word)) >= 0]


def count_held_back(text: str, words: Sequence[str]) -> int:
    """Return how many characters at its end may be the beginning of a stop string, and so are not told yet."""
    longest = max((len(word) for word in words), default=1) - 1
    ends = range(min(longest, len(text)), 0, -1)
    return next((size for size in ends if any(text[-size:] == word[:size] != word for word in words)), 0)


def select_for_engine(words: Sequence[str]) -> tuple[str, ...]:
    """Return as many stop strings as a request to an engine holds; the caller looks for all of them itself."""
    return tuple(words[:MOST_STOPS])
