"""Samples each row of a batch by its own temperature, top-p and top-k, and keeps the log-probabilities it sampled from.

The full distributions are not kept: of each step only the sampled token's value. A row whose logits are not finite has
nothing to sample from; it is marked and ended, so that it spoils no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers import LogitsProcessor, StoppingCriteria

from schemas.messages.work import Sampling

NEVER = float("-inf")


class RowSampler(LogitsProcessor):  # type: ignore[misc]
    """The last logits processor of `generate(do_sample=True, temperature=1, top_k=0, top_p=1)`.

    Temperature 0 takes the likeliest token; what is recorded for it is the model's own log-probability (temperature 1),
    as vLLM does. `end_id`: what a row is ended with that has nothing to sample from.
    """

    def __init__(self, samplings: Sequence[Sampling], device: torch.device, *, end_id: int) -> None:
        def column(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, device=device)[:, None]

        greedy = [one.temperature == 0 for one in samplings]
        self._greedy = torch.tensor(greedy, device=device)[:, None] if any(greedy) else None
        self._temperature = column([one.temperature or 1.0 for one in samplings])
        self._top_p = column([1.0 if one.temperature == 0 else one.top_p for one in samplings])
        self._top_k = column([0 if one.temperature == 0 else one.top_k for one in samplings])
        self._filters = bool((self._top_p < 1).any() or (self._top_k > 0).any())
        self._end_id = end_id
        self._broken = torch.zeros(len(samplings), dtype=torch.bool, device=device)
        self._recorded: list[torch.Tensor] = []
        self._pending: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """(rows, vocabulary) logits → log-probabilities to sample from."""
        self._record(input_ids[:, -1])
        scaled = scores / self._temperature
        if self._filters:
            scaled = self._filtered(scaled)
        self._pending = self._ended_where_broken(torch.log_softmax(scaled, dim=-1))
        return self._pending if self._greedy is None else _likeliest_where(self._greedy, self._pending)

    def _ended_where_broken(self, logprobs: torch.Tensor) -> torch.Tensor:
        """One number that is infinite or NaN makes all of its row's log-probabilities NaN, the first among them."""
        broken = logprobs[:, 0].isnan()
        if not broken.any():
            return logprobs
        self._broken |= broken
        ended = torch.full_like(logprobs[:1], NEVER)
        ended[0, self._end_id] = 0.0
        return torch.where(broken[:, None], ended, logprobs)

    @property
    def broken(self) -> list[bool]:
        """For each row, whether its logits were ever not finite."""
        broken: list[bool] = self._broken.tolist()
        return broken

    def _filtered(self, scaled: torch.Tensor) -> torch.Tensor:
        """Top-k, then top-p of what is left: the smallest set of likeliest tokens that holds top_p."""
        ordered, order = scaled.sort(dim=-1, descending=True)
        rank = torch.arange(scaled.shape[-1], device=scaled.device)[None]
        ordered = ordered.masked_fill((self._top_k > 0) & (rank >= self._top_k), NEVER)
        probabilities = ordered.softmax(dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        dropped = (self._top_p < 1) & (before >= self._top_p)
        return torch.full_like(scaled, NEVER).scatter(-1, order, ordered.masked_fill(dropped, NEVER))

    def _record(self, sampled: torch.Tensor) -> None:
        if self._pending is not None:
            self._recorded.append(self._pending.gather(-1, sampled[:, None]))

    def logprobs(self, completions: torch.Tensor) -> torch.Tensor:
        """(rows, steps): natural logs, of the tokens `generate` returned. Call once, at the end."""
        if len(self._recorded) < completions.shape[1]:
            self._record(completions[:, -1])
        return torch.cat(self._recorded[: completions.shape[1]], dim=-1)


def _likeliest_where(greedy: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
    """Rows that are greedy can give one token only."""
    likeliest = torch.zeros_like(logprobs, dtype=torch.bool).scatter(-1, logprobs.argmax(-1, keepdim=True), True)
    return logprobs.masked_fill(greedy & ~likeliest, NEVER)


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
