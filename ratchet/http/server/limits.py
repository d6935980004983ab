"""Bounds what one caller, or all together, may ask for: requests at once and per second, bytes, nesting, time.

Left out: headers; uvicorn bounds their size, and ratchet/runtime/runner.py how slowly they may come in.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import accumulate

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.http.access.roles import Caller
from ratchet.http.operation import Effect
from ratchet.http.problem import Problem

BODY_S = 20.0
"""Seconds a body may take to come in."""
DEEPEST = 64
REMEMBERED_CALLERS = 10_000
TIMEOUT_HEADER = "x-request-timeout"
LONGEST_S = 3600.0

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""One that is never closed goes on to the end: tried again from each quote within it, it would take hours."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def of_the_api(scope: Scope) -> bool:
    """Tell whether a request counts. A request at /mcp is counted by the calls of /v1 that it makes.

    Otherwise it could wait for a place that it holds itself.
    """
    return scope["type"] == "http" and str(scope["path"]).startswith("/v1/")


def is_work(scope: Scope) -> bool:
    """Tell whether it is a task, a chat or feedback. Known after the guard."""
    return bool(scope["type"] == "http" and scope["state"]["rule"].operation.effect is Effect.WORKS)


def places_of_work(most: int) -> int:
    """Return how many of all requests at a time may be work, which waits long; the rest is for looking and changing."""
    return max(1, most * 3 // 4)


class ConcurrencyLimit:
    """Bounds the requests at a time of those that `counts` is true of. A stream counts until its answer begins."""

    def __init__(self, app: ASGIApp, most: int, counts: Callable[[Scope], bool]) -> None:
        self._app = app
        self._most = most
        self._counts = counts
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._counts(scope):
            await self._app(scope, receive, send)
            return
        if self._running >= self._most:
            raise too_many(f"{self._most} requests are being answered (RATCHET_API_REQUESTS_AT_ONCE)", 1)
        self._running += 1
        counted = True

        def leave() -> None:
            nonlocal counted
            self._running -= counted
            counted = False

        async def leave_and_send(message: Message) -> None:
            leave()
            await send(message)

        try:
            await self._app(scope, receive, leave_and_send)
        finally:
            leave()


class RateLimit:
    """Bounds each caller's requests a second, with twice as many in a burst (GCRA); 0: no limit.

    Comes after the guard.
    """

    def __init__(self, app: ASGIApp, per_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._per_s = per_s
        self._monotonic = monotonic
        self._due: OrderedDict[str, float] = OrderedDict()
        """Caller → when all it asked for so far would be over at the allowed rate."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._per_s and (caller := scope["state"].get("caller")):
            self._take(caller)
        await self._app(scope, receive, send)

    def _take(self, caller: Caller) -> None:
        now = self._monotonic()
        due = max(now, self._due.pop(caller.name, now)) + 1 / self._per_s
        early = due - now - 2.0
        if early > 1e-6:
            self._due[caller.name] = due - 1 / self._per_s
            raise too_many(f"{caller.name} asks for more than {self._per_s:g} a second", math.ceil(early))
        self._due[caller.name] = due
        if len(self._due) > REMEMBERED_CALLERS:
            self._due.popitem(last=False)


class Body:
    """Reads a body whole, within its bounds, before any route sees the request. Comes after the guard."""

    def __init__(self, app: ASGIApp, most_bytes: int, within_s: float = BODY_S) -> None:
        self._app = app
        self._most = most_bytes
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        if (encoding := Headers(scope=scope).get("content-encoding", "identity")) != "identity":
            why = f"content-encoding: a body in {encoding[:32]!r} is not unpacked: send it uncompressed"
            raise Problem(415, "Compressed", why, "content-encoding")
        body = await self._read(Headers(scope=scope), receive)
        if depth_of(body) > DEEPEST:
            raise Problem(400, "Nested too deep", f"brackets go deeper than {DEEPEST}: flatten the body", "nested")
        if has_half_characters(body):
            raise Problem(
                400, "No text", "a \\u escape is half of a surrogate pair: send whole characters", "half-character"
            )
        await self._app(scope, _again(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._most:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._within_s):
                return await self._read_body(receive)
        except TimeoutError:
            raise Problem(408, "Too slow", f"the body did not come in within {self._within_s:g} s", "slow") from None

    async def _read_body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "Cut off", "the client went away within the body", "cut-off")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                raise self._too_large()
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self) -> Problem:
        detail = f"a body may have {self._most:,} bytes (RATCHET_MAX_MESSAGE_BYTES)"
        return Problem(413, "Too large", detail, "too-large", {"Connection": "close"})


class Deadline:
    """Bounds the wait for an answer by X-Request-Timeout, in seconds. A change is never broken off.

    Comes after the guard.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get(TIMEOUT_HEADER) if scope["type"] == "http" else None
        if given is None or scope["state"]["rule"].operation.effect.changes:
            await self._app(scope, receive, send)
            return
        seconds = seconds_of(given)
        begun = asyncio.Event()

        async def send_and_note(message: Message) -> None:
            begun.set()
            limit.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(seconds) as limit:
                await self._app(scope, receive, send_and_note)
        except TimeoutError:
            if begun.is_set() or not limit.expired():
                raise
            detail = f"there was no answer within {seconds:g} s ({TIMEOUT_HEADER}); what was submitted goes on"
            raise Problem(504, "Out of time", detail, "deadline") from None


def seconds_of(given: str) -> float:
    """Raises Problem for what is no number of seconds."""
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_S:
        raise Problem(400, "No time", f"{TIMEOUT_HEADER} is a number of seconds, above 0 and at most {LONGEST_S:g}")
    return seconds


def too_many(why: str, retry_after_s: int) -> Problem:
    return Problem(429, "Too many requests", f"{why}: try again later", "too-many", {"Retry-After": str(retry_after_s)})


def depth_of(body: bytes) -> int:
    """Return how deep brackets are nested outside of strings; exact for JSON, an upper bound where there are few
    brackets."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= DEEPEST:
        return opening
    brackets = _STRINGS.sub(b"", body).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def has_half_characters(body: bytes) -> bool:
    """Return whether JSON has an escaped surrogate without its other half: no log and no answer could hold such
    text."""
    if not _SURROGATE.search(body):
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except ValueError:
        return False  # no JSON at all: that is said elsewhere
    return False


def _again(body: bytes, receive: Receive) -> Receive:
    """The whole body first; after it what comes next: that the client has gone."""
    whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replay_body() -> Message:
        nonlocal whole
        if whole is None:
            return await receive()
        message, whole = whole, None
        return message

    return replay_body
