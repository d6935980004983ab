"""Samples each row of a batch by its own temperature, top-p and top-k, and says the log-probabilities it sampled from.

A row whose logits are not finite has nothing to sample from; it is marked and ended, so that it spoils no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch.nn.functional import embedding, pad
from transformers import LogitsProcessor, StoppingCriteria

from ratchet.conversation.stops import Stops
from ratchet.grammars.masks import Bits, GrammarRow, fill_masks, free_masks, unpack_masks
from ratchet.service.errors import PromptRefused
from schemas.messages.work import Sampling

RowMasks = tuple[Bits | None, dict[int, PromptRefused]]
NEVER = float("-inf")
CHUNK = 256
BELOW_ONE = 1 - 1e-12
OF_OCTETS = torch.where(torch.from_numpy(unpack_masks(np.arange(256, dtype=np.int32)[:, None], 8)), 0.0, NEVER)
"""(256, 8): what is added to the logits of eight tokens by eight bits of a mask: four times faster than `where`."""


@dataclass(frozen=True, slots=True)
class RowTensors:
    """Tensors whose first dimension is the rows of a batch."""

    def select(self, rows: torch.Tensor) -> Self:
        return type(self)(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})

    def plus(self, other: Self) -> Self:
        pairs = ((one.name, getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return type(self)(**{name: torch.cat([mine, its]) for name, mine, its in pairs})


@dataclass(frozen=True, slots=True)
class RowSampling(RowTensors):
    """The sampling of each row. Temperature 0 takes the likeliest token.

    The log-probability recorded for it is the model's own (temperature 1), as in vLLM.
    """

    greedy: torch.Tensor
    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor

    @classmethod
    def from_samplings(cls, samplings: Sequence[Sampling], device: torch.device) -> Self:
        def column(values: list[float], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        cold = [one.temperature == 0 for one in samplings]
        return cls(
            column([float(one) for one in cold], torch.bool),
            column([one.temperature or 1.0 for one in samplings], torch.float32),
            column([1.0 if one.temperature == 0 else one.top_p for one in samplings], torch.float32),
            column([0 if one.temperature == 0 else one.top_k for one in samplings], torch.long),
        )


class RowSampler:
    """Draws the next token of each row. The choices that need a look at the tensors are made once, here."""

    def __init__(self, rows: RowSampling) -> None:
        self._rows = rows
        self._filtered = ((rows.top_p < 1) | (rows.top_k > 0)).nonzero()[:, 0]
        self._scaled = bool((rows.temperature != 1).any())
        self._greedy = bool(rows.greedy.any())

    def logprobs(self, logits: torch.Tensor) -> torch.Tensor:
        """(rows, vocabulary) logits → log-probabilities to sample from; NaN throughout for a row that is not finite."""
        scaled = logits / self._rows.temperature[:, None] if self._scaled else logits
        if len(self._filtered):
            some = self._rows.select(self._filtered)
            scaled = scaled.index_copy(0, self._filtered, _filter_top(scaled[self._filtered], some))
        return torch.log_softmax(scaled, dim=-1)

    def draw(self, logprobs: torch.Tensor) -> torch.Tensor:
        """(rows,) tokens. Of a row that is NaN any."""
        drawn = _draw(logprobs)
        return torch.where(self._rows.greedy, logprobs.argmax(-1), drawn) if self._greedy else drawn


def constrain(logits: torch.Tensor, masks: Bits | None) -> torch.Tensor:
    """Return logits with -inf for what the masks of the rows do not allow."""
    if masks is None:
        return logits
    octets = torch.from_numpy(masks.view(np.uint8)).to(logits.device)
    return logits + embedding(octets.int(), OF_OCTETS.to(logits.device)).flatten(1)[:, : logits.shape[-1]]


def masks_of(grammars: Sequence[GrammarRow | None], vocabulary: int, drawn: torch.Tensor | None = None) -> RowMasks:
    """Go on behind the tokens that were drawn, if any, and return the masks of all rows, None where no row has a
    grammar, and the errors of `fill_masks`."""
    if not any(grammars):
        return None, {}
    for grammar, token in zip(grammars, [] if drawn is None else drawn.tolist(), strict=False):
        if grammar is not None:
            grammar.take(token)
    masks = free_masks(len(grammars), vocabulary)
    return masks, fill_masks(grammars, masks)


def rows_not_finite(logprobs: torch.Tensor) -> torch.Tensor:
    """(rows,): one infinite number or NaN makes all of its row's log-probabilities NaN, the first among them."""
    return logprobs[:, 0].isnan()


def _filter_top(scaled: torch.Tensor, rows: RowSampling) -> torch.Tensor:
    """Top-k, then top-p of what is left: the smallest set of likeliest tokens that holds top_p."""
    ordered, order = scaled.sort(dim=-1, descending=True)
    rank = torch.arange(scaled.shape[-1], device=scaled.device)[None]
    ordered = ordered.masked_fill((rows.top_k > 0)[:, None] & (rank >= rows.top_k[:, None]), NEVER)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    dropped = (rows.top_p < 1)[:, None] & (before >= rows.top_p[:, None])
    return torch.full_like(scaled, NEVER).scatter(-1, order, ordered.masked_fill(dropped, NEVER))


def _draw(logprobs: torch.Tensor) -> torch.Tensor:
    """One number at random picks a chunk of the vocabulary, then a token in it: the sums are exact enough in double."""
    spare = -logprobs.shape[-1] % CHUNK
    whole = pad(logprobs, (0, spare), value=NEVER) if spare else logprobs
    chunks = whole.exp().view(len(whole), -1, CHUNK)
    upto = chunks.sum(-1, dtype=torch.float64).cumsum(-1)
    random = torch.rand(len(upto), 1, dtype=torch.float64, device=upto.device)
    aim = random * upto[:, -1:] * BELOW_ONE
    chunk = torch.searchsorted(upto, aim, right=True).clamp(max=upto.shape[-1] - 1)
    inside = chunks.gather(1, chunk[..., None].expand(-1, 1, CHUNK))[:, 0].cumsum(-1, dtype=torch.float64)
    rest = aim - pad(upto, (1, 0)).gather(-1, chunk)
    place = torch.searchsorted(inside, rest.minimum(inside[:, -1:] * BELOW_ONE), right=True).clamp(max=CHUNK - 1)
    return (chunk * CHUNK + place)[:, 0].clamp(max=logprobs.shape[-1] - 1)


class SamplingOfGenerate(LogitsProcessor):  # type: ignore[misc]
    """The last logits processor of `generate(do_sample=True, temperature=1, top_k=0, top_p=1)`, which then draws.

    `end_id`: what a row is ended with that has nothing to sample from. Of each step the sampled token's value is kept.
    `faults`: of rows whose grammar could not be followed.
    """

    def __init__(
        self,
        samplings: Sequence[Sampling],
        device: torch.device,
        *,
        end_id: int,
        grammars: Sequence[GrammarRow | None] = (),
    ) -> None:
        self._grammars = grammars
        self.faults: dict[int, PromptRefused] = {}
        self._rows = RowSampling.from_samplings(samplings, device)
        self._sampler = RowSampler(self._rows)
        self._end_id = end_id
        self._broken = torch.zeros(len(samplings), dtype=torch.bool, device=device)
        self._recorded: list[torch.Tensor] = []
        self._pending: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(rows, vocabulary) logits → log-probabilities to sample from."""
        self._record(input_ids[:, -1])
        drawn = None if self._pending is None else input_ids[:, -1]
        masks, faults = masks_of(self._grammars, scores.shape[-1], drawn)
        self.faults |= faults
        logprobs = self._sampler.logprobs(constrain(scores, masks))
        ended = torch.full_like(logprobs[:1], NEVER)
        ended[0, self._end_id] = 0.0
        self._broken |= rows_not_finite(logprobs)
        self._pending = torch.where(rows_not_finite(logprobs)[:, None], ended, logprobs)
        best = self._pending.argmax(-1, keepdim=True)
        likeliest = torch.zeros_like(logprobs, dtype=torch.bool).scatter(-1, best, True)
        return self._pending.masked_fill(self._rows.greedy[:, None] & ~likeliest, NEVER)

    @property
    def broken(self) -> list[bool]:
        """Tells for each row whether its logits were ever not finite."""
        found: list[bool] = self._broken.tolist()
        return found

    def _record(self, sampled: torch.Tensor) -> None:
        if self._pending is not None:
            self._recorded.append(self._pending.gather(-1, sampled[:, None]))

    def logprobs(self, completions: torch.Tensor) -> torch.Tensor:
        """(rows, steps): natural logs, of the tokens `generate` returned. Call once, at the end."""
        if len(self._recorded) < completions.shape[1]:
            self._record(completions[:, -1])
        return torch.cat(self._recorded[: completions.shape[1]], dim=-1)


class RowLimits(StoppingCriteria):  # type: ignore[misc]
    """Ends each row at its own number of tokens. `on_step` is called for each token of the batch."""

    def __init__(
        self, prompt_length: int, max_tokens: Sequence[int], device: torch.device, on_step: Callable[[], None]
    ) -> None:
        self._on_step = on_step
        self._ends = prompt_length + torch.tensor(max_tokens, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        self._on_step()
        return self._ends <= input_ids.shape[1]


class RowStops(StoppingCriteria):  # type: ignore[misc]
    """Ends each row at its own stop strings; a row without any is not copied to the host."""

    def __init__(self, prompt_length: int, stops: Sequence[Stops | None]) -> None:
        self._prompt_length = prompt_length
        self._stops = stops

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        ended = [
            stops is not None and stops.count(row[self._prompt_length :].tolist()) is not None
            for row, stops in zip(input_ids, self._stops, strict=True)
        ]
        return torch.tensor(ended, device=input_ids.device)
