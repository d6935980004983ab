"""One batch after the other through transformers' own `generate`, for models that the loop of decode_loop.py misfits.

A batch ends with its longest answer, and each sample's prompt is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import torch

from ratchet.models.batcher import WaitingLine
from ratchet.service.errors import EngineError
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.sampling import RowLimits, RowStops, SamplingOfGenerate
from services.agent.engines.tokens import Answer, Completion, TokenRequest, cut, failure, not_finite


class WholeBatches:
    """Generates as DecodeLoop does, but no sample enters a batch that has begun; nobody is told of tokens."""

    rows = 0

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        adapters: RowAdapters,
        *,
        end_ids: Iterable[int],
        max_rows: int,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._adapters = adapters
        self._end_ids = frozenset(end_ids)
        self._max_rows = max_rows
        self._on_step = on_step
        self._waiting: dict[int, TokenRequest] = {}
        self._line: WaitingLine[int] = WaitingLine(lambda number: number not in self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def submit(self, number: int, request: TokenRequest) -> None:
        self._waiting[number] = request
        self._line.add(number, request.sampling.n, request.priority)

    def cancel(self, number: int) -> None:
        self._waiting.pop(number, None)

    @property
    def adapters_in_use(self) -> frozenset[str | None]:
        return frozenset(request.adapter for request in self._waiting.values())

    def forget(self, adapter: str) -> None:
        """Do nothing: no adapter is kept."""

    def step(self) -> list[tuple[int, Answer]]:
        numbers = self._line.batch(self._max_rows)
        requests = [self._waiting.pop(number) for number in numbers]
        self.rows = sum(request.sampling.n for request in requests)
        return list(zip(numbers, self._answers(requests), strict=True)) if requests else []

    def _answers(self, requests: Sequence[TokenRequest]) -> list[Answer]:
        """Answer a batch. If it fails as a whole, each request is tried alone, so that only the guilty one fails."""
        try:
            return self._generate_token_answers(requests)
        except Exception as error:
            if len(requests) == 1:
                return [failure(error, requests[0].sampling.n)]
        return [self._answers([request])[0] for request in requests]

    @torch.inference_mode()
    def _generate_token_answers(self, requests: Sequence[TokenRequest]) -> list[Answer]:
        rows = [request for request in requests for _ in range(request.sampling.n)]
        inputs = self._tokenizer.pad({"input_ids": [list(row.ids) for row in rows]}, return_tensors="pt")
        inputs = inputs.to(self._model.device)
        length = inputs["input_ids"].shape[1]
        limits = [row.sampling.max_tokens for row in rows]
        sampler = SamplingOfGenerate(
            [row.sampling for row in rows],
            self._model.device,
            end_id=min(self._end_ids),
            grammars=[row.grammar() for row in rows],
        )
        self._adapters.use([row.adapter for row in rows])
        sequences = self._model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=max(limits),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            logits_processor=[sampler],
            stopping_criteria=[
                RowLimits(length, limits, self._model.device, self._on_step),
                *_stopping_criteria(rows, length),
            ],
            pad_token_id=self._tokenizer.pad_token_id,
            eos_token_id=sorted(self._end_ids),
        )
        completions = sequences[:, length:]
        columns = zip(completions.tolist(), sampler.logprobs(completions).tolist(), limits, strict=True)
        samples = [
            cut(ids[:limit], logprobs[:limit], self._end_ids).ended_by(row.stops())
            for row, (ids, logprobs, limit) in zip(rows, columns, strict=True)
        ]
        faults = [sampler.faults.get(row) for row in range(len(rows))]
        rows_left = iter(zip(samples, sampler.broken, faults, strict=True))
        return [_answer(request, list(islice(rows_left, request.sampling.n))) for request in requests]


def _stopping_criteria(rows: Sequence[TokenRequest], prompt_length: int) -> list[RowStops]:
    """Return the criteria that end rows at their stop strings; nothing where no row has any."""
    stops = [row.stops() for row in rows]
    return [RowStops(prompt_length, stops)] if any(stops) else []


def _answer(request: TokenRequest, rows: Sequence[tuple[Completion, bool, EngineError | None]]) -> Answer:
    if any(bad for _, bad, _ in rows):
        return not_finite(request.adapter)
    return next((fault for *_, fault in rows if fault), None) or [completion for completion, *_ in rows]
