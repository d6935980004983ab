"""Requests to other machines: 6 operations, behind the guard of ssrf.py.

No proxy, no cookies, nothing of the environment; each redirect is checked anew, and only GET and HEAD are redirected.
Answers are asked for uncompressed, so what is counted is what is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import httpcore
import httpx
from pydantic import Field, StringConstraints

from workbench.tools.operation import Answer, Effect, Subject, ToolError, WorkspacePath
from workbench.tools.policy import Http
from workbench.tools.ssrf import GuardedNetwork
from workbench.tools.tree import require_not_git
from workbench.tools.workshop import Workshop

HTTP = Subject("http")

Url = Annotated[str, StringConstraints(min_length=8, max_length=4096), Field(description="http:// or https://.")]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$", max_length=4096)]
Headers = Annotated[dict[HeaderName, HeaderValue], Field(max_length=30)]

_OURS = """
    host connection content-length transfer-encoding te trailer upgrade expect proxy-authorization proxy-connection
    accept-encoding keep-alive forwarded x-forwarded-for x-forwarded-host
"""
OURS = frozenset(_OURS.split())
"""Headers that the request itself decides on."""
OF_ONE_SERVER = frozenset({"authorization", "cookie", "x-api-key"})
SHOWN = ("content-type", "content-length", "location", "etag", "last-modified", "retry-after", "date")
REDIRECTS = (301, 302, 303, 307, 308)


@HTTP.operation(Effect.REACHES, private=("headers",))
async def http_get(at: Workshop, url: Url, headers: Headers = {}) -> Answer:  # noqa: B006
    """GET a text (HTML, JSON, …) from a public server. http_download is for what is not text."""
    return _reply_fields(await _ask(at, "GET", url, headers))


@HTTP.operation(Effect.REACHES, private=("headers",))
async def http_head(at: Workshop, url: Url, headers: Headers = {}) -> Answer:  # noqa: B006
    """Ask for the status and the headers of a URL, without its content."""
    return _reply_fields(await _ask(at, "HEAD", url, headers))


@HTTP.operation(Effect.CHANGES, private=("headers", "body"))
async def http_post(at: Workshop, url: Url, body: Any, headers: Headers = {}) -> Answer:  # noqa: B006
    """POST a JSON value to a public server."""
    return _reply_fields(await _ask(at, "POST", url, headers, _json(body)))


@HTTP.operation(Effect.CHANGES, private=("headers", "body"))
async def http_put(at: Workshop, url: Url, body: Any, headers: Headers = {}) -> Answer:  # noqa: B006
    """PUT a JSON value to a public server."""
    return _reply_fields(await _ask(at, "PUT", url, headers, _json(body)))


@HTTP.operation(Effect.CHANGES, private=("headers",))
async def http_delete(at: Workshop, url: Url, headers: Headers = {}) -> Answer:  # noqa: B006
    """DELETE a URL of a public server."""
    return _reply_fields(await _ask(at, "DELETE", url, headers))


@HTTP.operation(Effect.REACHES, private=("headers",))
async def http_download(at: Workshop, url: Url, path: WorkspacePath, headers: Headers = {}) -> Answer:  # noqa: B006
    """GET a URL into a file of the workspace, whatever it is."""
    require_not_git(path)
    reply = await _ask(at, "GET", url, headers, most=at.policy.http.download_bytes, whole=True)
    if not 200 <= reply.status < 300:
        raise ToolError("failed", f"{reply.url} answered {reply.status}: nothing was written")

    def write_download() -> None:
        at.tree.make_folder_of(path)
        at.tree.write(path, reply.body)

    await at.change(write_download)
    return {"path": path, "bytes": len(reply.body), "url": reply.url, "type": reply.headers.get("content-type")}


@dataclass(frozen=True, slots=True)
class Reply:
    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


async def _ask(
    at: Workshop,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    most: int | None = None,
    whole: bool = False,
) -> Reply:
    """Raises ToolError: refused, not reached, too long (`whole`), or too slow."""
    policy = at.policy.http
    if len(body) > policy.request_bytes:
        raise ToolError("limit", f"the body has {len(body):,} bytes, more than {policy.request_bytes:,}")
    if own := [name for name in headers if name.lower() in OURS]:
        raise ToolError("arguments", f"the header {own[0]} is not yours to set")
    try:
        async with asyncio.timeout(policy.seconds):
            return await _follow(at, method, url, dict(headers), body, most or policy.answer_bytes, whole)
    except TimeoutError:
        raise ToolError("limit", f"{url[:200]} did not answer within {policy.seconds:g} s") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, ssl.SSLError) as error:
        raise ToolError("failed", f"{url[:200]}: {type(error).__name__} {error}") from None


async def _follow(
    at: Workshop, method: str, url: str, headers: dict[str, str], body: bytes, most: int, whole: bool
) -> Reply:
    policy = at.policy.http
    target = check_url(url, policy)
    for _ in range(policy.redirects + 1):
        async with _answer(at, method, target, headers, body) as (status, found, chunks):
            location = found.get("location")
            if status in REDIRECTS and location and method in ("GET", "HEAD"):
                after = check_url(str(_join_url(target, location)), policy)
                if (after.scheme, after.host, after.port) != (target.scheme, target.host, target.port):
                    headers = {name: value for name, value in headers.items() if name.lower() not in OF_ONE_SERVER}
                target = after
                continue
            content = bytearray()
            async for chunk in chunks:
                content += chunk
                if len(content) > most:
                    if whole:
                        raise ToolError("limit", f"{target} has more than {most:,} bytes")
                    break
            return Reply(str(target), status, found, bytes(content[:most]), len(content) <= most)
    raise ToolError("limit", f"{url[:200]} redirects more than {policy.redirects} times")


@asynccontextmanager
async def _answer(
    at: Workshop, method: str, target: httpx.URL, headers: Mapping[str, str], body: bytes
) -> AsyncIterator[tuple[int, dict[str, str], AsyncIterator[bytes]]]:
    network = GuardedNetwork(at.resolve, at.policy.http.networks)
    sent = {
        "Host": target.netloc.decode(),
        "User-Agent": "ratchet-tools",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
    }
    if body:
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    own = {name.lower() for name in headers}
    sent = {name: value for name, value in sent.items() if name.lower() not in own} | dict(headers)
    times = dict.fromkeys(("connect", "read", "write", "pool"), at.policy.http.seconds)
    async with (
        httpcore.AsyncConnectionPool(ssl_context=_tls(), network_backend=network, max_keepalive_connections=0) as pool,
        pool.stream(
            method,
            httpcore.URL(
                scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path or b"/"
            ),
            headers=list(sent.items()),
            content=body,
            extensions={"timeout": times},
        ) as reply,
    ):
        names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.headers}
        yield reply.status, names, reply.aiter_stream()


def check_url(text: str, policy: Http) -> httpx.URL:
    """The URL, if its scheme, host and port are allowed. Raises ToolError. Its address is checked when it is known."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise ToolError("arguments", f"that is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError("arguments", f"{text[:200]!r} is no http:// or https:// URL")
    if url.userinfo:
        raise ToolError("arguments", "a URL has no name and password here: send an Authorization header")
    port = url.port or (443 if url.scheme == "https" else 80)
    if port not in policy.ports:
        raise ToolError(
            "policy", f"port {port} is not among those that may be asked: {', '.join(map(str, policy.ports))}"
        )
    host = url.raw_host.decode("ascii", "replace").lower().rstrip(".")
    if not any(_is_named(host, one.lower()) for one in policy.hosts):
        raise ToolError(
            "policy", f"{host} is not among the hosts that may be asked: {', '.join(policy.hosts) or 'none'}"
        )
    return url


def _is_named(host: str, rule: str) -> bool:
    if rule.startswith("*."):
        return host.endswith(rule[1:]) and not _is_address(host)
    return rule in ("*", host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _join_url(base: httpx.URL, location: str) -> httpx.URL:
    try:
        return base.join(location)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        raise ToolError("failed", f"{base} redirects to what is no URL") from None


@cache
def _tls() -> ssl.SSLContext:
    """The authorities of certifi, whatever the environment says."""
    return httpx.create_ssl_context(trust_env=False)


def _json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ToolError("arguments", f"the body is nothing that JSON can hold: {error}") from None


def _reply_fields(reply: Reply) -> Answer:
    answer: Answer = {
        "url": reply.url,
        "status": reply.status,
        "headers": {name: reply.headers[name][:300] for name in SHOWN if name in reply.headers},
    }
    if reply.body:
        kind = reply.headers.get("content-type", "")
        try:
            text = reply.body.decode("utf-8") if reply.whole else reply.body.decode("utf-8", "ignore")
            answer |= {"text": text, "whole": reply.whole}
        except UnicodeDecodeError:
            answer["not_text"] = (
                f"{len(reply.body):,} bytes of {kind or 'something'}: http_download writes them to a file"
            )
    return answer
