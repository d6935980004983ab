"""A client of one OpenAI-compatible server: bounded in time and number of calls, tried again where that may help.

It knows nothing of what it asks. No streaming.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from contextlib import nullcontext, suppress
from functools import cache
from typing import Any, Literal, TypeVar
from urllib.request import getproxies

import httpx
from pydantic import BaseModel, ValidationError

from ratchet.bus.retry_policy import pause_s
from ratchet.openai.chat import ChatReply
from ratchet.openai.completions import ServedModel, ServedModels, TextCompletion, Tokens
from ratchet.openai.transport import CallTimeout, ModelServerError, ServerUnavailable, StreamingTransport, error_of
from ratchet.service.errors import AdapterError
from ratchet.service.telemetry import Log
from schemas.messages.task import ChatMessage, Tool

log = Log("openai")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
CONNECT_TIMEOUT_S = 5.0
CONTROL_TIMEOUT_S = 120.0
"""Seconds for all but generation; loading an adapter reads its file."""
AGAIN = frozenset((408, 409, 425, 429))
"""Besides 5xx: the status codes after which the same request may succeed."""

Answer = TypeVar("Answer", bound=BaseModel)


def http_client(
    base_url: str, api_key: str | None, *, connections: int | None = None, streams: bool = False
) -> httpx.AsyncClient:
    """`connections`: at most so many; None for as many as there are calls. `streams`: most answers come token by token,
    so where no proxy is in between they are read at less cost (and `connections` bounds nothing)."""
    direct = streams and not {"all", "http", "https"} & getproxies().keys()
    return httpx.AsyncClient(
        transport=StreamingTransport(_authorities()) if direct else None,
        base_url=base_url,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=256),
        verify=_authorities(),
    )


@cache
def _authorities() -> ssl.SSLContext:
    """Those TLS trusts, read once a process: it takes 40 ms."""
    return httpx.create_ssl_context()


class OpenAiClient:
    """Calls may be made concurrently; at most `concurrency` of them are in flight.

    Every call raises ServerUnavailable (CallTimeout, ModelMissing) or RequestRefused (ContextTooLong).
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        setting: str,
        timeout_s: float,
        api_path: str = "",
        retries: int = 0,
        concurrency: int | None = None,
        probe_s: float = 5.0,
    ) -> None:
        """`http` has the server's base URL, `api_path` leads from there to OpenAI's routes; stop() closes it.

        `setting` names the setting that holds the URL, for errors. `retries` are of generation.
        """
        self._http = http
        self._setting = setting
        self._timeout_s = timeout_s
        self._api = api_path
        self._retries = retries
        self._probe_s = probe_s
        self._slots = asyncio.Semaphore(concurrency) if concurrency else nullcontext()
        self._trouble: str | None = None
        self._probing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Looks every `probe_s` seconds whether a server that is away is back; until then, `trouble` says so."""
        await self._probe()
        self._probing = asyncio.create_task(self._probe_while_in_trouble())

    async def stop(self) -> None:
        if self._probing:
            self._probing.cancel()
            with suppress(asyncio.CancelledError):
                await self._probing
        await self._http.aclose()

    def trouble(self) -> str | None:
        return self._trouble

    async def chat(self, body: dict[str, Any]) -> str:
        """The text of the first choice."""
        return (await self.chat_reply(body)).text

    async def chat_reply(self, body: dict[str, Any]) -> ChatReply:
        """The completion, with what it cost where the server says so."""
        return self._parse_reply(
            ChatReply, "chat completion", await self._generate(f"{self._api}/chat/completions", body)
        )

    async def complete(self, body: dict[str, Any]) -> TextCompletion:
        return self._parse_reply(TextCompletion, "completion", await self._generate(f"{self._api}/completions", body))

    async def models(self) -> tuple[ServedModel, ...]:
        return self._parse_reply(ServedModels, "list of models", await self._control("GET", f"{self._api}/models")).data

    async def _generate(self, path: str, body: dict[str, Any]) -> httpx.Response:
        async with self._slots:
            try:
                reply = await self._ask("POST", path, body, timeout_s=self._timeout_s, retries=self._retries)
            except CallTimeout:
                raise
            except ServerUnavailable as error:
                self._trouble = str(error)
                raise
        self._trouble = None
        return reply

    async def _control(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """All that is no generation: tried once."""
        return await self._ask(method, path, body, timeout_s=CONTROL_TIMEOUT_S, retries=0)

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, *, timeout_s: float, retries: int
    ) -> httpx.Response:
        tries = 0
        while True:
            reply, fault = await self._try(method, path, body, timeout_s)
            if reply is not None and reply.is_success:
                return reply
            may_pass = reply is None or reply.status_code in AGAIN or reply.status_code >= 500
            if tries and tries >= retries and may_pass:
                raise ServerUnavailable(f"{self._where(path)} failed {tries + 1} times; the last: {fault}")
            if tries >= retries or not may_pass:
                raise self._error(path, reply, fault)
            tries += 1
            pause = _pause(tries, reply)
            log.info("call-retried", f"{self._where(path)}: {fault}", tries=tries, pause_s=round(pause, 2))
            await asyncio.sleep(pause)

    async def _try(
        self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
    ) -> tuple[httpx.Response | None, str]:
        """The reply if one came, and what to say of it. Raises CallTimeout."""
        limit = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._http.request(method, path, json=body, timeout=limit)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise CallTimeout(f"{self._where(path)} gave no reply within {timeout_s:g} s") from None
        except httpx.HTTPError as error:
            return None, f"no connection ({error or type(error).__name__})"
        return reply, f"HTTP {reply.status_code}: {reply.text[:200]}"

    async def _probe_while_in_trouble(self) -> None:
        while True:
            await asyncio.sleep(self._probe_s)
            if self._trouble:
                await self._probe()

    async def _probe(self) -> None:
        """Any answer will do that is neither a fault inside nor a refusal of the key."""
        path = f"{self._api}/models"
        try:
            reply, fault = await self._try("GET", path, None, self._timeout_s)
        except CallTimeout as error:
            self._trouble = str(error)
            return
        broken = reply is None or reply.status_code in (401, 403) or reply.status_code >= 500
        self._trouble = str(self._error(path, reply, fault)) if broken else None

    def _where(self, path: str) -> str:
        return f"{str(self._http.base_url).rstrip('/')}{path}"

    def _error(self, path: str, reply: httpx.Response | None, fault: str) -> ModelServerError:
        if reply is None:
            advice = f"is it up, and {self._setting} right?"
            return ServerUnavailable(f"{self._where(path)} can't be reached ({fault}): {advice}")
        return error_of(self._where(path), reply.status_code, reply.text, setting=self._setting)

    def _parse_reply(self, model: type[Answer], name: str, reply: httpx.Response) -> Answer:
        try:
            return model.model_validate_json(reply.content)
        except ValidationError:
            raise ServerUnavailable(f"{reply.url} answered with no {name}: {reply.text[:200]}") from None


def _pause(tries: int, reply: httpx.Response | None) -> float:
    """The seconds that the server asks for in Retry-After, else exponential with jitter; never over LONGEST_PAUSE_S."""
    asked = reply.headers.get("retry-after", "") if reply is not None else ""
    if asked.isdecimal():
        return min(float(asked), LONGEST_PAUSE_S)
    return pause_s(tries, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random())


class VllmClient(OpenAiClient):
    """`http` has the server's root for its base URL, `api_path` is /v1."""

    async def check_health(self) -> None:
        await self._control("GET", "/health")

    async def tokenize(
        self, model: str, messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...] = ()
    ) -> tuple[int, ...]:
        """Through the server's chat template."""
        body = {
            "model": model,
            "messages": [message.model_dump() for message in messages],
            "add_generation_prompt": True,
        } | ({"tools": [tool.model_dump() for tool in tools]} if tools else {})
        return self._parse_reply(Tokens, "list of tokens", await self._control("POST", "/tokenize", body)).tokens

    async def load_adapter(self, name: str, path: str) -> None:
        await self._change_adapters("load", {"lora_name": name, "lora_path": path})

    async def unload_adapter(self, name: str) -> None:
        await self._change_adapters("unload", {"lora_name": name})

    async def _change_adapters(self, change: Literal["load", "unload"], body: dict[str, Any]) -> None:
        """Raises AdapterError. A server that does not allow changes answers with 404."""
        try:
            await self._control("POST", f"{self._api}/{change}_lora_adapter", body)
        except ModelServerError as error:
            await self.check_health()  # an adapter that does not fit is answered with 500: away or not is told here
            raise AdapterError(
                f"the server could not {change} {body['lora_name']!r}: {error}. It needs --enable-lora, a sufficient "
                "--max-lora-rank, VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and the adapters under the same path"
            ) from error
