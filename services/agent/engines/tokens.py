"""Requests to a model in terms of token ids, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Self

import torch

from ratchet.conversation.stops import Stops, watch_for
from ratchet.grammars.masks import GrammarRow
from ratchet.service.errors import AdapterError, EngineError
from schemas.messages.response import FinishReason
from schemas.messages.work import Sampling
from services.agent.engines.engine import TokenListener


@dataclass(frozen=True, slots=True, eq=False)
class TokenRequest:
    """`sampling.n` answers to a prompt, none longer than the model has room for. Higher priorities go first.

    `on_tokens` gets the number of the sample, its new ids and their log-probabilities as they are sampled, where the
    model is generated with step by step. `keep`: the next prompt is likely to begin with this one and its answer.
    `text_of`: of tokens, where the strings of `sampling.stop` are looked for. `begin_grammar`: of one of its answers.
    """

    ids: Sequence[int]
    sampling: Sampling
    adapter: str | None = None
    priority: int = 0
    on_tokens: TokenListener | None = None
    keep: bool = False
    text_of: Callable[[Sequence[int]], str] | None = None
    begin_grammar: Callable[[], GrammarRow] | None = None

    def grammar(self) -> GrammarRow | None:
        """Return the grammar of one of its answers, at its beginning; None where any answer may be given."""
        return self.begin_grammar() if self.begin_grammar else None

    def stops(self) -> Stops | None:
        """Return the stops of one of its answers; None where it ends at no strings."""
        return watch_for(self.sampling.stop, self.text_of) if self.text_of else None


@dataclass(frozen=True, slots=True)
class Completion:
    """`ids` with the token that ended it, if one did, or with which a stop string was whole."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason

    def ended_by(self, stops: Stops | None) -> Self:
        """Cut behind the token with which a stop string was whole."""
        count = stops.count(self.ids) if stops else None
        return self if count is None else type(self)(self.ids[:count], self.logprobs[:count], "stop")


Answer = Sequence[Completion] | EngineError


def cut(ids: Sequence[int], logprobs: Sequence[float], end_ids: Collection[int]) -> Completion:
    """Cut a completion after its first end token, which belongs to it."""
    ends = (place for place, token in enumerate(ids, 1) if token in end_ids)
    end = next(ends, None)
    return Completion(tuple(ids[:end]), tuple(logprobs[:end]), "length" if end is None else "stop")


def not_finite(adapter: str | None) -> EngineError:
    """Return the error of logits that are not finite; an adapter's is not retried."""
    if adapter is None:
        return EngineError("the base model's logits for this prompt are not finite: see that it is stored whole")
    return AdapterError(
        f"the logits of {adapter} for this prompt are not finite: its weights are too large; roll it back, and "
        f"train again with a lower learning rate"
    )


def failure(error: Exception, samples: int) -> EngineError:
    """Return the error for a failed pass through the model."""
    if isinstance(error, torch.OutOfMemoryError):
        return EngineError(f"no memory for {samples} samples at once: lower RATCHET_AGENT_MAX_BATCH")
    return EngineError(f"generating {samples} samples failed: {error}")
