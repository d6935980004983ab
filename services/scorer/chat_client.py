"""Calls of an OpenAI-compatible chat server: bounded in time and number, tried again where that may help.

Knows nothing of judging. No streaming, no tools.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import httpx

from ratchet.bus.retry_policy import pause_s
from ratchet.service.errors import ScorerError
from ratchet.service.telemetry import Log

log = Log("scorer")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
AGAIN = frozenset((408, 409, 425, 429))
"""Besides 5xx: the status codes after which the same request may succeed."""


class ServerUnavailable(ScorerError):
    """It can't be reached, refuses our key or answers nonsense: the request is not at fault."""


class CallTimeout(ScorerError):
    """No reply within the time-out."""


class RequestRefused(ScorerError):
    """The server will never answer this request: too long, or against its policy."""


class ChatClient:
    """`complete` may be called concurrently; at most `concurrency` calls are in flight.

    Every `probe_s` seconds it looks whether a server that was away is back.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None,
        timeout_s: float,
        retries: int,
        concurrency: int,
        probe_s: float = 5.0,
    ) -> None:
        self._url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._retries = retries
        self._probe_s = probe_s
        self._slots = asyncio.Semaphore(concurrency)
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=concurrency + 1),
        )
        self._trouble: str | None = None
        self._probing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A server that is not there yet is no failure: `trouble` says so, until it is."""
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

    async def complete(self, body: dict[str, Any]) -> str:
        """The text of the first choice. Raises ServerUnavailable, CallTimeout or RequestRefused."""
        async with self._slots:
            try:
                reply = await self._post_until_answered(body)
            except ServerUnavailable as error:
                self._trouble = str(error)
                raise
        self._trouble = None
        return _content(reply)

    async def _post_until_answered(self, body: dict[str, Any]) -> httpx.Response:
        tries = 0
        while True:
            reply, fault = await self._post(body)
            if reply is not None and reply.is_success:
                return reply
            if reply is not None and not _may_pass(reply):
                raise _refusal(self._url, reply)
            if tries >= self._retries:
                raise ServerUnavailable(f"{self._url} failed {tries + 1} times; the last: {fault}")
            tries += 1
            pause = _pause(tries, reply)
            log.info("call-retried", f"{self._url}: {fault}", tries=tries, pause_s=round(pause, 2))
            await asyncio.sleep(pause)

    async def _post(self, body: dict[str, Any]) -> tuple[httpx.Response | None, str]:
        """The reply if one came, and what to say of it. Raises CallTimeout."""
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._http.post(f"{self._url}/chat/completions", json=body)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise CallTimeout(f"{self._url} gave no reply within {self._timeout_s:g} s") from None
        except httpx.RequestError as error:
            return None, f"no connection ({error or type(error).__name__})"
        return reply, f"HTTP {reply.status_code}: {reply.text[:200]}"

    async def _probe_while_in_trouble(self) -> None:
        while True:
            await asyncio.sleep(self._probe_s)
            if self._trouble:
                await self._probe()

    async def _probe(self) -> None:
        try:
            reply = await self._http.get(f"{self._url}/models")
        except httpx.RequestError as error:
            self._trouble = f"{self._url} can't be reached ({error or type(error).__name__}): start it, or mend the URL"
            return
        broken = reply.status_code in (401, 403) or reply.status_code >= 500
        self._trouble = str(_refusal(self._url, reply)) if broken else None


def _may_pass(reply: httpx.Response) -> bool:
    return reply.status_code in AGAIN or reply.status_code >= 500


def _pause(tries: int, reply: httpx.Response | None) -> float:
    """What the server asks for in Retry-After (seconds), else exponential with jitter; never over LONGEST_PAUSE_S."""
    asked = reply.headers.get("retry-after", "") if reply is not None else ""
    if asked.isdecimal():
        return min(float(asked), LONGEST_PAUSE_S)
    return pause_s(tries, first_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S, random=random.random())


def _refusal(url: str, reply: httpx.Response) -> ScorerError:
    said = f"HTTP {reply.status_code}: {reply.text[:200]}"
    if reply.status_code in (400, 413, 422):
        return RequestRefused(f"{url} refuses the request ({said})")
    if reply.status_code in (401, 403):
        return ServerUnavailable(f"{url} refuses our key ({said}): mend the API key")
    return ServerUnavailable(f"{url} does not answer as an OpenAI-compatible server ({said}): mend URL or model")


def _content(reply: httpx.Response) -> str:
    try:
        message = reply.json()["choices"][0]["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise ServerUnavailable(f"the reply is no chat completion: {reply.text[:200]}") from None
    if isinstance(content, str):
        return content
    raise RequestRefused(f"the model gave no text{f': {refusal}' if refusal else ''}")
