"""An engine whose model is behind an OpenAI-compatible URL: a provider's big model, or any server's.

It asks for chat completions and gets text: no token ids, so nothing of it can be trained with a ratio, and no adapters.
While the server is away `trouble` says so, and tasks wait until their deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
from pydantic import ValidationError

from ratchet.models.tokenization import chat_messages
from ratchet.openai.chat import ChatReply
from ratchet.openai.client import OpenAiClient, http_client
from ratchet.openai.transport import ContextTooLong, ModelServerError, RequestRefused
from ratchet.service.errors import AdapterError, EngineError, PromptRefused, PromptTooLong, SettingsError
from schemas.messages.response import Sample, Usage
from schemas.messages.task import AnswerFormat
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.settings import AgentSettings

URL_SETTING = "RATCHET_BIG_MODEL"
RETRIES = 2
"""Further tries of a call whose failure may pass; then the task is tried again as any other."""


class OpenAiEngine:
    """`model` is the name that the server knows it by. A group of n answers is n calls."""

    base = None

    def __init__(self, http: httpx.AsyncClient, *, model: str, timeout_s: float = 600.0, concurrency: int = 64) -> None:
        """`http` has the URL that OpenAI's routes hang below, with /v1 where the server has that."""
        self._model = model
        self._client = OpenAiClient(
            http, setting=URL_SETTING, timeout_s=timeout_s, retries=RETRIES, concurrency=concurrency
        )

    @classmethod
    def from_settings(cls, settings: AgentSettings) -> Self:
        if not settings.big_model.startswith(("http://", "https://")):
            raise SettingsError(
                f"{URL_SETTING}={settings.big_model!r} is no http:// or https:// URL: the engine openai needs one, as "
                "https://api.openai.com/v1"
            )
        if not settings.big_model_name:
            raise SettingsError("the engine openai needs the name of the model: set RATCHET_BIG_MODEL_NAME")
        key = settings.big_model_api_key
        return cls(
            http_client(
                settings.big_model, key.get_secret_value() if key else None, connections=settings.agent_max_batch + 1
            ),
            model=settings.big_model_name,
            timeout_s=settings.agent_generation_timeout_s,
            concurrency=settings.agent_max_batch,
        )

    @property
    def identity(self) -> str:
        return f"openai {self._model}"

    async def start(self) -> None:
        await self._client.start()

    async def stop(self) -> None:
        await self._client.stop()

    async def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Generation | EngineError]:
        return await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request: GenerationRequest) -> Generation | EngineError:
        if request.adapter is not None:
            return AdapterError(f"the engine {self.identity} has no adapters: give this agent's tasks its base model")
        if request.tools or (request.format is not None and request.format.type == "tool_call"):
            return PromptRefused(f"the engine {self.identity} takes no tools: ask it without them")
        body = chat_body(self._model, request)
        try:
            replies = await asyncio.gather(*(self._client.chat_reply(body) for _ in range(request.sampling.n)))
            return Generation(tuple(map(sample_of, replies)))
        except ContextTooLong as error:
            return PromptTooLong(str(error))
        except RequestRefused as error:
            return PromptRefused(str(error))
        except ModelServerError as error:
            return EngineError(str(error))

    async def load_adapter(self, name: str, path: Path) -> None:
        raise AdapterError(f"the engine {self.identity} can't load {name!r}: the weights behind the URL are not ours")

    async def unload_adapter(self, name: str) -> None:
        pass

    def adapters(self) -> frozenset[str]:
        return frozenset()

    def trouble(self) -> str | None:
        return self._client.trouble()


def chat_body(model: str, request: GenerationRequest) -> dict[str, Any]:
    """A body for /chat/completions. What the fleet filters nothing by is not sent: some servers refuse it."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [message.model_dump(exclude_none=True) for message in chat_messages(request.prompt)],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.top_p < 1.0:
        body["top_p"] = sampling.top_p
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if request.format is not None:
        body["response_format"] = _response_format(request.format)
    return body


def _response_format(wanted: AnswerFormat) -> dict[str, Any]:
    if wanted.type == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": wanted.json_schema}}


def sample_of(reply: ChatReply) -> Sample:
    """The first choice, with what it cost where the server says so. Raises RequestRefused where it is no text."""
    is_cut = reply.choices[0].finish_reason == "length"
    return Sample(text=reply.text, finish_reason="length" if is_cut else "stop", usage=_usage(reply.usage))


def _usage(given: Any) -> Usage | None:
    with suppress(TypeError, KeyError, ValidationError):
        return Usage(calls=1, prompt_tokens=given["prompt_tokens"], sampled_tokens=given["completion_tokens"])
    return None
