"""A model in this process: transformers on the CPU or one GPU, several adapters in one batch through PEFT.

Leaves out continuous batching: a batch ends with its longest answer; for more, use a vLLM server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self

import torch

from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.models.tokenization import completion_text, prompt_ids
from ratchet.service.errors import AdapterError, EngineError, PromptTooLong
from schemas.messages.base import BaseModelIdentity
from schemas.messages.response import FinishReason, Sample
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.peft_adapters import PeftAdapters
from services.agent.engines.sampling import RowLimits, RowSampler
from services.agent.settings import AgentSettings


class TransformersEngine:
    """`load` gives the model; it is called once, by `start`. `seed` None: samples differ from start to start."""

    def __init__(self, load: Callable[[], LanguageModel], *, seed: int | None = None) -> None:
        self._load = load
        self._seed = seed
        self._loaded: tuple[LanguageModel, PeftAdapters, LocalGenerator] | None = None
        self.on_step: Callable[[], None] = lambda: None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        load = partial(
            load_language_model,
            settings.agent_model,
            settings.agent_model_revision,
            dtype=settings.agent_dtype,
            device=settings.agent_device,
            threads=settings.agent_threads,
        )
        return cls(load, seed=settings.agent_seed)

    def start(self) -> None:
        language_model = self._load()
        if self._seed is not None:
            torch.manual_seed(self._seed)
        adapters = PeftAdapters(language_model.model)
        self._loaded = language_model, adapters, LocalGenerator(language_model, adapters)

    @property
    def _parts(self) -> tuple[LanguageModel, PeftAdapters, LocalGenerator]:
        if self._loaded is None:
            raise EngineError("the model is not loaded: start the engine first")
        return self._loaded

    @property
    def identity(self) -> str:
        return f"transformers {self._parts[0].identity}"

    @property
    def base(self) -> BaseModelIdentity:
        identity = self._parts[0].identity
        return BaseModelIdentity(name=identity.name, revision=identity.revision)

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        return self._parts[2].answer(requests, self.on_step)

    def load_adapter(self, name: str, path: Path) -> None:
        self._parts[1].load(name, path)

    def unload_adapter(self, name: str) -> None:
        self._parts[1].unload(name)


@dataclass(frozen=True, slots=True)
class _Group:
    """A request as `sampling.n` equal rows, none longer than the model allows."""

    prompt_ids: list[int]
    sampling: Sampling
    adapter: str | None


class LocalGenerator:
    """One batch through a model in this process: requests in, groups of samples out. Blocks."""

    def __init__(self, language_model: LanguageModel, adapters: PeftAdapters) -> None:
        self._lm = language_model
        self._end_ids = language_model.end_ids
        self._adapters = adapters

    def answer(
        self, requests: Sequence[GenerationRequest], on_step: Callable[[], None]
    ) -> list[Generation | EngineError]:
        """In order; `on_step` is called for each token of the batch.

        Raises EngineError if the whole batch failed, for instance for want of memory.
        """
        prepared = [self._prepare(request) for request in requests]
        groups = [group for group in prepared if isinstance(group, _Group)]
        answers = iter(self._generate(groups, on_step) if groups else ())
        return [next(answers) if isinstance(group, _Group) else group for group in prepared]

    def _prepare(self, request: GenerationRequest) -> _Group | EngineError:
        if request.adapter is not None and request.adapter not in self._adapters.names:
            return AdapterError(f"the engine has no adapter {request.adapter!r}: load it first")
        try:
            ids = prompt_ids(self._lm.tokenizer, request.prompt)
        except EngineError as error:
            return error
        room = self._lm.max_positions - len(ids)
        if room < 1:
            return PromptTooLong(
                f"the prompt has {len(ids)} tokens; {self._lm.identity} holds {self._lm.max_positions}, "
                "the answer included: shorten it"
            )
        sampling = request.sampling
        limited = sampling.model_copy(update={"max_tokens": min(sampling.max_tokens, room)})
        return _Group(ids, limited, request.adapter)

    @torch.inference_mode()
    def _generate(self, groups: Sequence[_Group], on_step: Callable[[], None]) -> list[Generation | EngineError]:
        rows = [group for group in groups for _ in range(group.sampling.n)]
        inputs = self._lm.tokenizer.pad({"input_ids": [row.prompt_ids for row in rows]}, return_tensors="pt")
        inputs = inputs.to(self._lm.device)
        length = inputs["input_ids"].shape[1]
        limits = [row.sampling.max_tokens for row in rows]
        sampler = RowSampler([row.sampling for row in rows], self._lm.device, end_id=min(self._end_ids))
        try:
            sequences = self._adapters.generate(
                [row.adapter for row in rows],
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=max(limits),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                logits_processor=[sampler],
                stopping_criteria=[RowLimits(length, limits, self._lm.device, on_step)],
                pad_token_id=self._lm.tokenizer.pad_token_id,
                eos_token_id=sorted(self._end_ids),
            )
        except torch.OutOfMemoryError as error:
            raise EngineError(f"no memory for {len(rows)} samples at once: lower RATCHET_AGENT_MAX_BATCH") from error
        except RuntimeError as error:
            raise EngineError(f"generating {len(rows)} samples failed: {error}") from error
        completions = sequences[:, length:]
        tokens, logprobs = completions.tolist(), sampler.logprobs(completions).tolist()
        samples = [self._sample(*row) for row in zip(tokens, logprobs, limits, strict=True)]
        rows_left = iter(zip(samples, sampler.broken, strict=True))
        return [_answer(group, list(islice(rows_left, group.sampling.n))) for group in groups]

    def _sample(self, tokens: list[int], logprobs: list[float], limit: int) -> Sample:
        """Cut after the first end token, which belongs to the completion, or at the limit."""
        ends = (position for position, token in enumerate(tokens[:limit]) if token in self._end_ids)
        end = next(ends, None)
        length = limit if end is None else end + 1
        finish_reason: FinishReason = "length" if end is None else "stop"
        return Sample(
            text=completion_text(self._lm.tokenizer, tokens[:length]),
            completion_ids=tuple(tokens[:length]),
            logprobs=tuple(logprobs[:length]),
            finish_reason=finish_reason,
        )


def _answer(group: _Group, rows: Sequence[tuple[Sample, bool]]) -> Generation | EngineError:
    """`rows`: each with whether its logits were not finite, which no retry mends where they are an adapter's."""
    if not any(broken for _, broken in rows):
        return Generation(tuple(sample for sample, _ in rows), tuple(group.prompt_ids))
    if group.adapter is None:
        return EngineError("the base model's logits for this prompt are not finite: see that it is stored whole")
    return AdapterError(
        f"the logits of {group.adapter} for this prompt are not finite: its weights are too large; roll it back, and "
        f"train again with a lower learning rate"
    )
