"""Where an answer ends that ends at strings: the one rule of the engines, the recorder and the public front. Pure.

Of the sampled tokens those are kept up to the one with which a string was whole, and what is told ends before it. That
is decided by the tokens so far alone, so what is kept is the policy's own, as it was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ratchet.recorder.decoding import Decoding
from schemas.messages.base import MOST_STOPS
from schemas.messages.response import Sample


class Stops:
    """Watches one answer while its tokens come: of the text before only the end is looked at again."""

    def __init__(self, words: Sequence[str], text_of: Callable[[Sequence[int]], str]) -> None:
        """`text_of`: of tokens, as the text is looked at in which the strings are looked for."""
        self._words = words
        self._longest = max(map(len, words))
        self._decoding = Decoding(text_of)
        self._count: int | None = None

    def count(self, ids: Sequence[int]) -> int | None:
        """How many of an answer's tokens are kept; None while no string is in it. `ids`: all so far."""
        for token in ids[self._decoding.count :] if self._count is None else ():
            begin = max(0, self._decoding.settled - self._longest + 1)
            text = self._decoding.add(token)
            if any(text.find(word, begin) >= 0 for word in self._words):
                self._count = self._decoding.count
                break
        return self._count


def watched(words: Sequence[str] | None, text_of: Callable[[Sequence[int]], str]) -> Stops | None:
    """None where nothing is to be looked for."""
    return Stops(words, text_of) if words else None


def before(text: str, words: Sequence[str] | None) -> tuple[str, str | None]:
    """What is told of a text, and the string that ended it."""
    end, word = min(places(text, words or ()), default=(len(text), None))
    return text[:end], word


def ended(samples: Sequence[Sample], words: Sequence[str] | None) -> tuple[Sample, ...]:
    """As they are scored, told and logged, whoever made them: a text ends before the first of the strings. One that had
    to be cut loses its tokens, for which of them wrote the rest is not known here, and so teaches nothing. What a
    program printed is its own: the strings are those of its calls of the model.
    """
    return tuple(_ended(sample, words) for sample in samples)


def _ended(sample: Sample, words: Sequence[str] | None) -> Sample:
    told, word = before(sample.text, words if sample.program is None and sample.segments is None else None)
    if word is None:
        return sample
    without = dict.fromkeys(("completion_ids", "logprobs", "token_texts"))
    return sample.model_copy(update={"text": told, "finish_reason": "stop", "stopped_at": word} | without)


def places(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    """Where each of the stop strings that are in it first is."""
    return [(at, word) for word in words if (at := text.find(word)) >= 0]


def held_back(text: str, words: Sequence[str]) -> int:
    """Characters at its end that may be the beginning of a stop string, and so are not told yet."""
    longest = max((len(word) for word in words), default=1) - 1
    ends = range(min(longest, len(text)), 0, -1)
    return next((size for size in ends if any(text[-size:] == word[:size] != word for word in words)), 0)


def for_engine(words: Sequence[str]) -> tuple[str, ...]:
    """Of a Work's and a call's as many as a request holds; whoever asks looks for all of them itself."""
    return tuple(words[:MOST_STOPS])
