"""The part of vLLM's HTTP interface the agent uses: one method an endpoint, errors sorted into ours. Holds no state.

Any server with the same endpoints will do; one without `token_ids` gives samples without ids.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from ratchet.service.errors import AdapterError, EngineError, PromptRefused, PromptTooLong
from schemas.messages.response import FinishReason
from schemas.messages.task import ChatMessage

CONNECT_TIMEOUT_S = 5.0
CONTROL_TIMEOUT_S = 120.0
"""For all but generation; loading an adapter reads its file."""

Answer = TypeVar("Answer", bound=BaseModel)


class ServerAway(EngineError):
    """The server can't be reached or fails inside: not the request's fault."""


class ModelMissing(EngineError):
    """The server has no model or adapter of that name."""


class Logprobs(BaseModel):
    token_logprobs: tuple[float | None, ...]


class Choice(BaseModel):
    index: int
    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None = None
    logprobs: Logprobs | None = None


class Completion(BaseModel):
    choices: tuple[Choice, ...]


class ModelCard(BaseModel):
    id: str
    parent: str | None = None
    max_model_len: int | None = None


class ModelList(BaseModel):
    data: tuple[ModelCard, ...]


class Tokens(BaseModel):
    tokens: tuple[int, ...]


class VllmApi:
    """Every method raises ServerAway, and what it says. `client` has the server's base URL, without /v1."""

    def __init__(self, client: httpx.AsyncClient, *, generation_timeout_s: float) -> None:
        self._client = client
        self._generation_timeout = httpx.Timeout(generation_timeout_s, connect=CONNECT_TIMEOUT_S)

    async def check_health(self) -> None:
        await self._ask("GET", "/health")

    async def models(self) -> tuple[ModelCard, ...]:
        return _parsed(ModelList, await self._ask("GET", "/v1/models")).data

    async def tokenize(self, model: str, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """Through the server's chat template. Raises PromptRefused."""
        body = {
            "model": model,
            "messages": [message.model_dump() for message in messages],
            "add_generation_prompt": True,
        }
        return _parsed(Tokens, await self._ask("POST", "/tokenize", body)).tokens

    async def complete(self, body: dict[str, Any]) -> Completion:
        """Raises PromptTooLong, PromptRefused, ModelMissing."""
        answer = await self._ask("POST", "/v1/completions", body, timeout=self._generation_timeout)
        return _parsed(Completion, answer)

    async def load_adapter(self, name: str, path: str) -> None:
        await self._change_adapters("load", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        await self._change_adapters("unload", {"lora_name": name})

    async def _change_adapters(self, change: Literal["load", "unload"], body: dict[str, Any]) -> None:
        """Raises AdapterError. A server that does not allow changes answers with 404."""
        try:
            await self._ask("POST", f"/v1/{change}_lora_adapter", body)
        except EngineError as error:
            await self.check_health()  # an adapter that does not fit is answered with 500: away or not is told here
            raise AdapterError(
                f"the server could not {change} {body['lora_name']!r}: {error}. It needs --enable-lora, a sufficient "
                "--max-lora-rank, VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and the adapters under the same path"
            ) from error

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: httpx.Timeout | None = None
    ) -> httpx.Response:
        limit = timeout or httpx.Timeout(CONTROL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            answer = await self._client.request(method, path, json=body, timeout=limit)
        except httpx.HTTPError as error:
            raise ServerAway(
                f"the server at {self._client.base_url} does not answer {path} ({type(error).__name__}: {error}): "
                "is it up, and RATCHET_AGENT_VLLM_URL right?"
            ) from error
        if answer.is_success:
            return answer
        raise _error(path, answer)


def _error(path: str, answer: httpx.Response) -> EngineError:
    reason = _reason(answer)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return ModelMissing(f"{path} was answered with 404: {reason}")
    if answer.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY):
        if "context length" in reason or "max_model_len" in reason:
            return PromptTooLong(reason)
        return PromptRefused(f"{path} was answered with {answer.status_code}: {reason}")
    return ServerAway(f"{path} was answered with {answer.status_code}: {reason}")


def _reason(answer: httpx.Response) -> str:
    """The server's sentence, from the shapes vLLM has used for errors."""
    try:
        body = answer.json()
    except ValueError:
        return answer.text[:500]
    if not isinstance(body, dict):
        return str(body)[:500]
    error = body.get("error", body)
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]


def _parsed(model: type[Answer], answer: httpx.Response) -> Answer:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise ServerAway(f"{answer.url.path} answered with something else than {model.__name__}: {error}") from error
