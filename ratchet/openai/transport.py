"""HTTP/1.1 for answers that come in many small pieces: httpx's own transport costs several times as much for each, and
the more the more connections there are.

Parsed by httptools, as uvicorn's server parses. Takes no proxy from the environment, sends no body of unknown length;
a connection has one request at a time, and is kept for the next.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, cast

import httptools
import httpx

from ratchet.service.errors import RatchetError

MOST_CHARS = 500
"""Characters of what a server says about an error."""
_TOO_LONG = ("context length", "max_model_len")
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "invalid_request_error",
    410: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


class ModelServerError(RatchetError):
    """A call of a model server failed."""


class ServerUnavailable(ModelServerError):
    """It can't be reached, refuses our key, fails inside or answers nonsense: the request is not at fault."""


class CallTimeout(ServerUnavailable):
    """No reply within the time-out."""


class ModelMissing(ServerUnavailable):
    """The server has no such model, adapter or route."""


class RequestRefused(ModelServerError):
    """The server will never answer this request: against its rules or its policy."""


class ContextTooLong(RequestRefused):
    """The prompt leaves the model no room to answer."""


def error_object(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The member `error` of an answer, as OpenAI's clients read it. Its message names the parameter."""
    if param and not re.search(rf"(?<!\w){re.escape(param)}(?!\w)", message):
        message = f"{param}: {message}"
    return {"message": message, "type": _KINDS.get(status, "api_error"), "param": param, "code": code}


def anthropic_details(code: str | None) -> dict[str, Any]:
    """Return more of Anthropic's error: its clients decide by `details.error_code` whether to go on another way."""
    return {"details": {"error_code": code}} if code else {}


def message_of(body: str) -> str:
    """The sentence in an error's body, in any of the shapes that servers of the dialect have used."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return body[:MOST_CHARS]
    error = said.get("error", said) if isinstance(said, dict) else said
    return str(error.get("message", error) if isinstance(error, dict) else error)[:MOST_CHARS]


def error_of(where: str, status: int, body: str, *, setting: str) -> ModelServerError:
    """Sorts an answer that is no success. `setting` names what holds the server's address."""
    said = message_of(body)
    told = f"(HTTP {status}: {said})"
    if status in (400, 413, 422):
        kind = ContextTooLong if any(words in said for words in _TOO_LONG) else RequestRefused
        return kind(f"{where} refuses the request {told}")
    if status in (401, 403):
        return ServerUnavailable(f"{where} refuses our key {told}: mend the API key")
    if status == 404:
        return ModelMissing(f"{where} has no such model or route {told}: mend {setting} or the model's name")
    if status >= 500:
        return ServerUnavailable(f"{where} failed {told}")
    return ServerUnavailable(f"{where} does not answer as an OpenAI-compatible server {told}: mend {setting}")


MOST_HELD = 1 << 18
"""Bytes of a body that wait here before no more are read."""
MOST_IDLE = 256
"""Connections that are kept, to each server."""
KEPT_S = 5.0
"""Seconds for which an idle connection is kept; a proxy between may forget one without a word."""
Origin = tuple[str, str, int]


class StreamingTransport(httpx.AsyncBaseTransport):
    """`authorities`: of TLS, httpx's own if absent."""

    def __init__(self, authorities: ssl.SSLContext | None = None) -> None:
        self._authorities = authorities
        self._idle: dict[Origin, list[_Connection]] = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.TransportError."""
        if "transfer-encoding" in request.headers:
            raise httpx.LocalProtocolError("a request to an engine has a body of known length", request=request)
        assert isinstance(request.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in request.stream])
        timeout = request.extensions.get("timeout", {})
        connection = await self._connect(request.url, timeout.get("connect"))
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
        lines += [b"%s: %s" % header for header in request.headers.raw]
        try:
            status, headers = await connection.ask(b"\r\n".join([*lines, b"", body]), timeout.get("read"))
        except BaseException:
            connection.close()
            raise
        return httpx.Response(status, headers=headers, stream=_Body(self, connection, timeout.get("read")))

    async def aclose(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    def give_back(self, connection: _Connection) -> None:
        """One whose answer is whole, or is read no further."""
        idle = self._idle[connection.origin]
        connection.idle_since = time.monotonic()
        if connection.reusable and len(idle) < MOST_IDLE:
            idle.append(connection)
        else:
            connection.close()

    async def _connect(self, url: httpx.URL, within_s: float | None) -> _Connection:
        secure = url.scheme == "https"
        origin = (url.scheme, url.host, url.port or (443 if secure else 80))
        idle = self._idle[origin]
        while idle:
            if (connection := idle.pop()).reusable and time.monotonic() - connection.idle_since < KEPT_S:
                return connection
            connection.close()
        if secure and self._authorities is None:
            self._authorities = httpx.create_ssl_context()
        try:
            async with asyncio.timeout(within_s):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(origin), url.host, origin[2], ssl=self._authorities if secure else None
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection within {within_s:g} s") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return made


class _Connection(asyncio.Protocol):
    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.whole = True
        self.idle_since = 0.0
        self._lost: httpx.TransportError | None = None
        self._news: asyncio.Future[None] | None = None
        self._paused = False
        self._parts: list[bytes] = []
        self._held = 0

    @property
    def reusable(self) -> bool:
        return (
            self.whole and self._lost is None and self._keep and not self._paused and not self._transport.is_closing()
        )

    async def ask(self, request: bytes, within_s: float | None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Status and headers of the answer, whose body follows. Raises httpx.TransportError."""
        self.whole, self._keep, self._headed = False, True, False
        self._headers: list[tuple[bytes, bytes]] = []
        self._take()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport.write(request)
        while not self._headed:
            await self._wait(within_s)
        return self._status, self._headers

    async def part(self, within_s: float | None) -> bytes:
        """All of the body that has come since; nothing at its end. Raises httpx.TransportError."""
        while not self._parts and not self.whole:
            await self._wait(within_s)
        return self._take()

    def _take(self) -> bytes:
        part = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return part

    def close(self) -> None:
        self._transport.abort()

    async def _wait(self, within_s: float | None) -> None:
        if self._lost is not None:
            raise self._lost
        self._news = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within_s):
                await self._news
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"nothing came for {within_s:g} s") from error
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._keep = True

    def data_received(self, data: bytes) -> None:
        if self.whole:  # what nobody asked for
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._lost = httpx.RemoteProtocolError(f"it answers with no HTTP: {error}")
            self._transport.abort()
        if self._held > MOST_HELD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        self._keep = False
        if not self.whole and self._headed and not self._bounded and error is None:
            self.whole = True
        elif self._lost is None:
            self._lost = httpx.RemoteProtocolError("it closed the connection before its answer was whole")
        self._tell()

    @property
    def _bounded(self) -> bool:
        """Tell whether the body says where it ends; else it ends with the connection."""
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._headers)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._headed = self._status >= 200

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._held += len(body)

    def on_message_complete(self) -> None:
        if not self._headed:  # only that it goes on
            self._headers = []
            return
        self._keep = self._parser.should_keep_alive()
        self.whole = True


class _Body(httpx.AsyncByteStream):
    def __init__(self, transport: StreamingTransport, connection: _Connection, within_s: float | None) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._within_s = within_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert self._connection is not None
        while part := await self._connection.part(self._within_s):
            yield part

    async def aclose(self) -> None:
        """Ends what is not whole yet: closing the connection tells the engine so."""
        if self._connection is not None:
            self._transport.give_back(self._connection)
            self._connection = None
