"""A model in this process: transformers on the CPU or one GPU, several adapters in one batch.

Rows come and go one by one (decode_loop.py); a model that this is wrong for is generated with in whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, Self

import torch

from ratchet.conversation.stops import cut_at_stop
from ratchet.grammars.grammar import grammar_for
from ratchet.grammars.masks import GrammarRow, Grammars
from ratchet.models.cpu_threads import CpuThreads
from ratchet.models.loading import LanguageModel, load_language_model
from ratchet.models.tokenization import TokenizerCodec, completion_text, prompt_ids, token_texts
from ratchet.rollouts.parsing import call_form_of
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, PromptTooLong
from schemas.messages.base import BaseModelIdentity
from schemas.messages.response import Sample
from services.agent.engines.cached_forward import cache_shape, misfit
from services.agent.engines.decode_loop import DecodeLoop
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest, TokenListener
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.tokens import Answer, TokenRequest
from services.agent.engines.whole_batches import WholeBatches
from services.agent.settings import AgentSettings

LOOK_EVERY_STEPS = {"cpu": 1}
"""Steps between two looks at which rows are done, by kind of device: on a GPU each look waits for it."""
LOOK_EVERY_STEPS_ON_GPU = 4
GIB = 1024**3


class Loop(Protocol):
    """DecodeLoop and WholeBatches."""

    @property
    def rows(self) -> int: ...

    @property
    def busy(self) -> bool: ...

    def submit(self, number: int, request: TokenRequest) -> None: ...

    def cancel(self, number: int) -> None: ...

    @property
    def adapters_in_use(self) -> frozenset[str | None]: ...

    def forget(self, adapter: str) -> None: ...

    def step(self) -> Sequence[tuple[int, Answer]]: ...


class TransformersEngine:
    """A ContinuousEngine. `load` gives the model; it is called once, by `start`. `seed` None: samples differ from start
    to start.
    """

    def __init__(
        self,
        load: Callable[[], LanguageModel],
        *,
        seed: int | None = None,
        max_batch: int = 64,
        cache_gb: float = 4.0,
        choose_threads: bool = False,
    ) -> None:
        self._load = load
        self._seed = seed
        self._max_batch = max_batch
        self._cache_bytes = int(cache_gb * GIB)
        self._choose_threads = choose_threads
        self._threads: CpuThreads | None = None
        self._loaded: tuple[LanguageModel, RowAdapters, Loop] | None = None
        self._refused: list[tuple[int, EngineError]] = []
        self._asked: dict[int, IdsRequest] = {}
        self._grammars: Grammars | None = None
        """None until the first is asked for: a large vocabulary takes a second."""
        self._wants_texts: set[int] = set()
        self._unwanted: set[str] = set()
        """Adapters that go as soon as no request runs with them."""
        self.on_step: Callable[[], None] = lambda: None
        self.remarks: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        load = partial(
            load_language_model,
            settings.agent_model,
            settings.agent_model_revision,
            dtype=settings.agent_dtype,
            device=settings.agent_device,
            threads=settings.agent_threads or 1,
        )
        return cls(
            load,
            seed=settings.agent_seed,
            max_batch=settings.agent_max_batch,
            cache_gb=settings.agent_kv_cache_gb,
            choose_threads=settings.agent_threads is None,
        )

    def start(self) -> None:
        language_model = self._load()
        if self._seed is not None:
            torch.manual_seed(self._seed)
        adapters = RowAdapters(language_model.model)
        self._loaded = language_model, adapters, self._loop(language_model, adapters)
        if self._choose_threads and language_model.device.type == "cpu":
            self._threads = CpuThreads(language_model.model.num_parameters(), torch.set_num_threads)

    def _loop(self, lm: LanguageModel, adapters: RowAdapters) -> Loop:
        shape = cache_shape(lm.model)
        why = shape if isinstance(shape, str) else misfit(lm.model, shape)
        if isinstance(shape, str) or why is not None:
            self.remarks = (f"{lm.identity} is generated with in whole batches, which is slower: {why}",)
            return WholeBatches(
                lm.model,
                lm.tokenizer,
                adapters,
                end_ids=lm.end_ids,
                max_rows=self._max_batch,
                on_step=self._call_on_step,
            )
        return DecodeLoop(
            lm.model,
            shape,
            adapters,
            end_ids=lm.end_ids,
            max_rows=self._max_batch,
            cache_bytes=self._cache_bytes,
            check_every=LOOK_EVERY_STEPS.get(lm.device.type, LOOK_EVERY_STEPS_ON_GPU),
            on_step=self._call_on_step,
        )

    def _call_on_step(self) -> None:
        """Call the callback that is set by now."""
        self.on_step()

    @property
    def _parts(self) -> tuple[LanguageModel, RowAdapters, Loop]:
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

    @property
    def context(self) -> int:
        return self._parts[0].max_positions

    def load_adapter(self, name: str, path: Path) -> None:
        self._parts[1].load(name, path)
        self._unwanted.discard(name)

    def unload_adapter(self, name: str) -> None:
        self._unwanted.add(name)
        self._unload()

    def _unload(self) -> None:
        _, adapters, loop = self._parts
        for name in [name for name in self._unwanted if name not in loop.adapters_in_use]:
            adapters.unload(name)
            loop.forget(name)
            self._unwanted.discard(name)

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        """All at once, for whoever has nothing else to do meanwhile."""
        if self._parts[2].busy:
            raise EngineError("requests are on their way already: go on with `step`")
        answers: dict[int, Generation | EngineError] = {}
        for number, request in enumerate(requests):
            self.submit(number, request)
        while len(answers) < len(requests):
            answers.update(self.step())
        return [answers[number] for number in range(len(requests))]

    def submit(self, number: int, request: GenerationRequest) -> None:
        try:
            tokenizer, sampling = self._parts[0].tokenizer, request.sampling
            ids = prompt_ids(tokenizer, request.prompt, request.tools)
            if request.format is not None:
                grammar = grammar_for(request.format, request.tools, call_form_of(tokenizer.chat_template))
                sampling = sampling.model_copy(update={"grammar": grammar})
        except EngineError as error:
            self._refused.append((number, error))
            return
        if request.token_texts:
            self._wants_texts.add(number)
        sampled = IdsRequest(tuple(ids), sampling, request.adapter, request.priority)
        self._submit(number, sampled, lambda ids: completion_text(self._parts[0].tokenizer, list(ids)))

    def submit_ids(self, number: int, request: IdsRequest, on_tokens: TokenListener | None = None) -> None:
        """Stop strings are looked for in a text that shows control tokens, as whoever records sees it."""
        self._submit(number, request, TokenizerCodec(self._parts[0].tokenizer).decode, on_tokens)

    def _submit(
        self,
        number: int,
        request: IdsRequest,
        text_of: Callable[[Sequence[int]], str],
        on_tokens: TokenListener | None = None,
    ) -> None:
        lm, adapters, loop = self._parts
        count, adapter, sampling = len(request.prompt_ids), request.adapter, request.sampling
        room = lm.max_positions - count
        if adapter is not None and adapter not in adapters.names - self._unwanted:
            self._refused.append((number, AdapterError(f"the engine has no adapter {adapter!r}: load it first")))
        elif room < 1:
            long = f"the prompt has {count} tokens; {lm.identity} holds {lm.max_positions}, the answer included"
            self._refused.append((number, PromptTooLong(f"{long}: shorten it")))
        else:
            try:
                begin_grammar = self._grammar_start(request)
            except PromptRefused as error:
                self._refused.append((number, error))
                return
            self._asked[number] = request
            limited = sampling.model_copy(update={"max_tokens": min(sampling.max_tokens, room)})
            prompt, priority, keep = request.prompt_ids, request.priority, request.keep
            loop.submit(
                number, TokenRequest(prompt, limited, adapter, priority, on_tokens, keep, text_of, begin_grammar)
            )

    def _grammar_start(self, request: IdsRequest) -> Callable[[], GrammarRow] | None:
        """Return what begins an answer under its grammar, known to work. Raises PromptRefused."""
        if (grammar := request.sampling.grammar) is None:
            return None
        if self._grammars is None:
            lm = self._parts[0]
            self._grammars = Grammars(lm.tokenizer, lm.model.config.get_text_config().vocab_size, lm.end_ids)
        begun = request.prompt_ids[len(request.prompt_ids) - request.begun :]
        begin = partial(self._grammars.begin, grammar.text, begun)
        begin()
        return begin

    def cancel(self, number: int) -> None:
        self._asked.pop(number, None)
        self._wants_texts.discard(number)
        self._parts[2].cancel(number)

    @property
    def busy(self) -> bool:
        return bool(self._refused) or self._parts[2].busy

    @property
    def rows(self) -> int:
        return self._parts[2].rows

    def step(self) -> Sequence[tuple[int, Generation | EngineError]]:
        if self._threads is not None:
            self._threads.look()
        refused, self._refused = self._refused, []
        self._wants_texts.difference_update(number for number, _ in refused)
        answers = self._parts[2].step()
        self._unload()
        return [*refused, *((number, self._generation(number, answer)) for number, answer in answers)]

    def _generation(self, number: int, answer: Answer) -> Generation | EngineError:
        asked = self._asked.pop(number)
        with_texts = number in self._wants_texts
        self._wants_texts.discard(number)
        if isinstance(answer, EngineError):
            return answer
        tokenizer = self._parts[0].tokenizer
        told = [cut_at_stop(completion_text(tokenizer, list(one.ids)), asked.sampling.stop) for one in answer]
        samples = (
            Sample(
                text=text,
                completion_ids=one.ids,
                logprobs=one.logprobs,
                finish_reason=one.finish_reason,
                stopped_at=word,
                token_texts=token_texts(tokenizer, one.ids) if with_texts else None,
            )
            for one, (text, word) in zip(answer, told, strict=True)
        )
        return Generation(tuple(samples), asked.prompt_ids, asked.sampling.grammar)
