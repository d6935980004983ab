"""An engine that answers with its input: measures and tests everything around a model. Has no tokenizer, so no limits
but of ids that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Self

from ratchet.conversation.stops import cut_at_stop
from ratchet.service.errors import AdapterError, EngineError, PromptRefused
from schemas.messages.base import BaseModelIdentity
from schemas.messages.response import Sample
from services.agent.engines.engine import Generation, GenerationRequest, IdsRequest, TokenPiece
from services.agent.settings import AgentSettings


class EchoEngine:
    """Every sample is the text of the last chat message; with an adapter, `<adapter>: ` stands before it."""

    identity = "echo"
    base: BaseModelIdentity | None = None
    context = 8192

    def __init__(self, latency_s: float = 0.0) -> None:
        self._latency_s = latency_s
        self._adapters: set[str] = set()

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        return cls(settings.agent_echo_latency_s)

    async def start(self) -> None:
        pass

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        return [self._answer(request) for request in requests]

    def _answer(self, request: GenerationRequest) -> Generation | EngineError:
        if request.adapter is not None and request.adapter not in self._adapters:
            return AdapterError(f"the echo engine has no adapter {request.adapter!r}: load it first")
        if request.format is not None:
            return PromptRefused(f"the engine {self.identity} can't hold its answers to a form: ask it without one")
        text = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
        if request.adapter is not None:
            text = f"{request.adapter}: {text}"
        told, word = cut_at_stop(text, request.sampling.stop)
        return Generation((Sample(text=told, finish_reason="stop", stopped_at=word),) * request.sampling.n)

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        """The last turn, one token at a time, as sure as can be: what stands behind the last token that is as the first
        one, for templates that open turns with a token and ask for an answer with another. It goes on with a beginning
        of its answer that stands there already. Its tokens have no text, so strings to end at are for who asks.
        """
        if request.sampling.grammar is not None:
            raise PromptRefused(f"the engine {self.identity} can't hold its answers to a form: ask it without one")
        if request.adapter is not None and request.adapter not in self._adapters:
            raise AdapterError(f"the echo engine has no adapter {request.adapter!r}: load it first")
        ids = request.prompt_ids
        turn = ids[len(ids) - ids[::-1].index(ids[0]) :]
        begun = next(n for n in range((len(turn) - 1) // 2, -1, -1) if turn[len(turn) - n :] == turn[:n])
        said = turn[begun : len(turn) - begun - 1][: request.sampling.max_tokens]
        for token in said:
            await asyncio.sleep(self._latency_s / len(said))
            yield TokenPiece(0, (token,), (0.0,))
        yield TokenPiece(0, (), (), "length" if len(said) == request.sampling.max_tokens else "stop")

    async def load_adapter(self, name: str, path: Path) -> None:
        if not path.is_dir():
            raise AdapterError(f"no adapter folder {path} to load {name!r} from: restore it, or roll the agent back")
        self._adapters.add(name)

    async def unload_adapter(self, name: str) -> None:
        self._adapters.discard(name)

    def adapters(self) -> frozenset[str]:
        return frozenset(self._adapters)

    def trouble(self) -> str | None:
        return None

    async def stop(self) -> None:
        pass
