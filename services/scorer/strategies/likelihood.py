"""Scores an answer by how likely a bigger model finds it: exp of the mean log-probability of its tokens, in (0, 1].

The end of the answer is one of its tokens, unless it was cut at the token limit; each log-probability is floored, so
that one absurd token does not hide what the others say. Nothing is sampled: one forward pass over prompt and answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import torch

from ratchet.bus.in_hand import NEVER
from ratchet.models.batcher import Batcher
from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.models.tokenization import prompt_ids
from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, ScoringRequest, no_score
from services.scorer.strategies.verifier import score_distinct

FLOOR = -8.0
"""Lowest log-probability (natural log) a token counts with."""

MAX_ANSWERS = 512
"""Answers taken off the queue for one round of forward passes."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Prompt and answer as token ids; the answer begins at `start`. `ended`: its end is scored too."""

    ids: list[int]
    start: int
    ended: bool


class Likelihood:
    """One thread owns the model; what waits meanwhile becomes its next round."""

    one_by_one = True

    def __init__(self, settings: ScorerSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="likelihood")
        self._batcher: Batcher[ScoringRequest, list[SampleScore]] = Batcher(
            self._score_round, max_batch=MAX_ANSWERS, size_of=lambda request: len(request.answers)
        )
        self._language_model: LanguageModel | None = None
        self._advanced_at = NEVER

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        if argument:
            raise ScorerError(f"likelihood takes no {argument!r}: name the model in RATCHET_SCORER_LIKELIHOOD_MODEL")
        return cls(settings)

    @property
    def identity(self) -> ScorerIdentity:
        return ScorerIdentity(id="likelihood", revision=f"{self._model.identity};floor={FLOOR:g}")

    async def start(self) -> None:
        """Raises EngineError if the model can't be loaded."""
        self._language_model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def trouble(self) -> str | None:
        return None if self._language_model else "the likelihood model is not loaded yet"

    def advanced_at(self) -> float:
        return self._advanced_at

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        return await score_distinct(request, self._batcher.submit)

    @property
    def _model(self) -> LanguageModel:
        if self._language_model is None:
            raise ScorerError("the likelihood model is not loaded: start the strategy first")
        return self._language_model

    def _load(self) -> LanguageModel:
        return load_language_model(
            self._settings.scorer_likelihood_model,
            self._settings.scorer_likelihood_model_revision,
            device=self._settings.scorer_likelihood_device,
            threads=self._settings.scorer_likelihood_threads,
        )

    async def _score_round(self, requests: Sequence[ScoringRequest]) -> list[list[SampleScore] | Exception]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._score_all, requests)

    def _score_all(self, requests: Sequence[ScoringRequest]) -> list[list[SampleScore] | Exception]:
        groups = [rows_of(request, self._model) for request in requests]
        rows = [row for group in groups for row in group if isinstance(row, TokenRow)]
        scored = dict(self._likelihoods(rows))
        return [[_verdict(row, scored) for row in group] for group in groups]

    def _likelihoods(self, rows: Sequence[TokenRow]) -> Iterator[tuple[int, float]]:
        """(identity of the row, its likelihood), bucket by bucket."""
        for bucket in buckets(rows, self._settings.scorer_likelihood_batch_tokens):
            self._advanced_at = time.monotonic()
            yield from zip(map(id, bucket), likelihoods(self._model, bucket), strict=True)


def _verdict(row: TokenRow | SampleScore, scored: dict[int, float]) -> SampleScore:
    return row if isinstance(row, SampleScore) else SampleScore(score=min(scored[id(row)], 1.0))


def rows_of(request: ScoringRequest, model: LanguageModel) -> list[TokenRow | SampleScore]:
    """The request's answers as rows, or as the reason why one can't be scored."""
    prompt = prompt_ids(model.tokenizer, request.prompt)
    return [_row(prompt, answer, model) for answer in request.answers]


def _row(prompt: list[int], answer: Answer, model: LanguageModel) -> TokenRow | SampleScore:
    ids = model.tokenizer.encode(answer.text, add_special_tokens=False, split_special_tokens=True)
    ended = answer.finish_reason != "length"
    if not prompt or not (ids or ended):
        return no_score(1, "there is no token to score: the prompt, or an answer that was cut, is empty")[0]
    if len(prompt) + len(ids) > model.max_positions:
        reason = f"prompt and answer are {len(prompt) + len(ids)} tokens; the model reads {model.max_positions}"
        return no_score(1, reason)[0]
    return TokenRow([*prompt, *ids], len(prompt), ended)


def buckets(rows: Iterable[TokenRow], max_tokens: int) -> Iterator[list[TokenRow]]:
    """Rows of similar length together, so that little is padding; rows × longest ≤ `max_tokens`, or a single row."""
    bucket: list[TokenRow] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if bucket and len(row.ids) * (len(bucket) + 1) > max_tokens:
            yield bucket
            bucket = []
        bucket.append(row)
    if bucket:
        yield bucket


@torch.inference_mode()
def likelihoods(model: LanguageModel, rows: Sequence[TokenRow]) -> list[float]:
    """One likelihood per row, in order, from one forward pass.

    Padded on the right: with causal attention no token sees the padding, whatever the model does with positions.
    Logits are made only from just before the first answer on.
    """
    width = max(len(row.ids) for row in rows)
    first = min(row.start for row in rows) - 1
    ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows], device=model.device)
    lengths = torch.tensor([[len(row.ids)] for row in rows], device=model.device)
    mask = (torch.arange(width, device=model.device) < lengths).long()
    logits = model.model(input_ids=ids, attention_mask=mask, logits_to_keep=width - first, use_cache=False).logits
    ends = torch.tensor(sorted(model.end_ids), device=model.device)
    return [_likelihood(logits[index], row, first, ends) for index, row in enumerate(rows)]


def _likelihood(logits: torch.Tensor, row: TokenRow, first: int, ends: torch.Tensor) -> float:
    """`logits` [positions from `first` on, vocabulary]. Several end tokens count as one: the probability of any."""
    predicted = logits[row.start - 1 - first : len(row.ids) - first].float().log_softmax(-1)
    tokens = torch.tensor(row.ids[row.start :], device=logits.device, dtype=torch.long)
    scored = predicted[:-1].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    if row.ended:
        scored = torch.cat([scored, predicted[-1, ends].logsumexp(-1, keepdim=True)])
    return float(scored.clamp(min=FLOOR).mean().exp())
