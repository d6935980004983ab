"""The tokens that a grammar allows next, for a model's tokenizer: at the engine while it samples, and again at the
trainer, which replays the same masks over what was sampled.

The mask depends on the grammar and the tokens so far alone. Masks are rows of bits, 32 tokens in an int32, the first
token in the lowest bit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from numpy.typing import NDArray

from ratchet.grammars.grammar import LIMITS
from ratchet.service.errors import PromptRefused, one_line

Bits = NDArray[np.int32]
FREE = -1
"""A word of a mask: 32 tokens that are all allowed."""
KEPT = 64
"""Grammars that are kept compiled."""
PROCESSORS = LLExecutor()
"""Threads that compute masks."""


def free_masks(rows: int, vocabulary: int) -> Bits:
    """Return masks that allow everything."""
    return np.full((rows, (vocabulary + 31) // 32), FREE, np.int32)


def unpack_masks(masks: Bits, vocabulary: int) -> NDArray[np.bool_]:
    """(…, vocabulary): masks as true and false."""
    return np.unpackbits(masks.view(np.uint8), axis=-1, bitorder="little", count=vocabulary).view(np.bool_)


class GrammarRow:
    """One answer under a grammar, token by token."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher
        self.is_over = False

    def take(self, token: int) -> None:
        """Go on behind a token. Behind one that the grammar does not allow everything is allowed."""
        self.is_over = self.is_over or not self.matcher.consume_token(token)


def fill_masks(rows: Sequence[GrammarRow | None], masks: Bits) -> dict[int, PromptRefused]:
    """Write which tokens may come next in each row that has a grammar, several rows at once where there are processors.
    Returns the errors of grammars that take too long to follow, by row."""
    assert masks.flags["C_CONTIGUOUS"]  # it is written by address
    held = [(row.matcher, place) for place, row in enumerate(rows) if row is not None and not row.is_over]
    PROCESSORS.unsafe_compute_mask_ptr(held, masks.ctypes.data, masks.shape[1] * masks.itemsize, len(masks))
    faults = {}
    for matcher, place in held:
        if matcher.is_stopped() and (matcher.is_error() or not matcher.is_accepting()):
            said = one_line(matcher.get_error() or matcher.stop_reason(), 200)
            faults[place] = PromptRefused(
                f"the grammar of the answer can't be followed: {said}; make its schema simpler"
            )
            masks[place] = FREE
    return faults


class Grammars:
    """Grammars for one tokenizer. `vocabulary`: the logits of a model; `end_ids`: tokens that end an answer."""

    def __init__(self, tokenizer: Any, vocabulary: int, end_ids: Collection[int]) -> None:
        """Raises PromptRefused for a tokenizer of the slow kind."""
        self.vocabulary = vocabulary
        try:
            self.tokenizer: LLTokenizer = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=sorted(end_ids))
        except ValueError as error:
            raise PromptRefused(f"the model's tokenizer can't be held to a grammar: {error}") from error
        self._compiled: dict[str, Any] = {}

    def begin(self, text: str, sampled: Sequence[int] = ()) -> GrammarRow:
        """Begin an answer, behind the tokens of it that were sampled already. Raises PromptRefused."""
        if text not in self._compiled:
            matcher = LLMatcher(self.tokenizer, text, log_level=0, limits=LIMITS)
            if matcher.is_error():
                raise PromptRefused(f"the grammar can't be compiled: {one_line(matcher.get_error(), 200)}")
            if len(self._compiled) == KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[text] = matcher
        row = self._compiled[text].deep_copy()
        if sampled and not row.consume_tokens(list(sampled)):
            raise PromptRefused("what was sampled already is no beginning of an answer under its grammar")
        return GrammarRow(row)

    def replay(self, text: str, ids: Sequence[int], masks: Bits) -> None:
        """Write, a row a token, what was allowed where each was sampled. From a token on that the grammar does not
        allow everything is, so that a log which is wrong shows in its log-probabilities."""
        try:
            row = self.begin(text)
            for place, token in enumerate(ids):
                for fault in fill_masks([row], masks[place : place + 1]).values():
                    raise fault
                if not (masks[place, token // 32] >> token % 32) & 1:
                    masks[place:] = FREE
                    return
                row.take(token)
        except PromptRefused:
            masks[:] = FREE
