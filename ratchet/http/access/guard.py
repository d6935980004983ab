"""Stands before every route: who calls, and may they? An ASGI middleware, so that it comes before the body is read.

Without keys the service listens on loopback only and everyone on this machine is operator. A page in this machine's
browser is no such person: the Host must be a loopback name (DNS rebinding), and an Origin the service's own (CSRF).
What is open to anyone looks at the Host too, save for the health checks.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.http.access.keys import JWKS, REVOKED, PublicKeys, read_public_keys, read_revoked
from ratchet.http.access.matrix import Matrix
from ratchet.http.access.roles import LOCAL, Caller
from ratchet.http.access.tokens import EXPIRED, LEEWAY_S, Claims, TokenRefused, UnknownKey, check
from ratchet.http.problem import Problem
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from ratchet.service.telemetry import Log

CHECK_EVERY_S = 1.0
REMEMBERED = 1024
"""Tokens whose signature need not be checked again while the files stay as they are."""

log = Log("access")

Stamp = tuple[int, int, int] | None


class _Read(NamedTuple):
    """The content of the files, and what shows that they changed."""

    stamps: tuple[Stamp, Stamp]
    keys: PublicKeys
    revoked: frozenset[str]


class TokenCheck:
    """Use it from one event loop. Raises SettingsError at the start if there are no keys to check with."""

    def __init__(
        self,
        public_keys: Path,
        *,
        issuer: str,
        audience: str,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since 1970, by which a token expires that was taken before."""
        self._jwks = public_keys / JWKS if public_keys.is_dir() else public_keys
        self._revoked = self._jwks.with_name(REVOKED)
        self._issuer = issuer
        self._audience = audience
        self._monotonic = monotonic
        self._clock = clock
        self._read = self._load()
        self._checked_at = monotonic()
        self._believed: OrderedDict[str, Claims] = OrderedDict()

    async def caller(self, token: str) -> Caller:
        """Return the caller that the token names. Raises TokenRefused."""
        await self._reload()
        claims = self._believed.get(token)
        if claims is None:
            claims = await self._claims_with_new_keys(token)
            self._believed[token] = claims
            if len(self._believed) > REMEMBERED:
                self._believed.popitem(last=False)
        if claims.exp + LEEWAY_S <= self._clock():
            raise TokenRefused(EXPIRED)
        if claims.jti in self._read.revoked:
            raise TokenRefused("the token was revoked: issue a new one")
        return claims.caller

    async def _claims_with_new_keys(self, token: str) -> Claims:
        try:
            return self._claims(token)
        except UnknownKey:
            await self._read_anew()
            return self._claims(token)

    def _claims(self, token: str) -> Claims:
        return check(token, self._read.keys, issuer=self._issuer, audience=self._audience)

    async def _reload(self) -> None:
        if self._monotonic() - self._checked_at >= CHECK_EVERY_S:
            await self._read_anew()

    async def _read_anew(self) -> None:
        self._checked_at = self._monotonic()
        try:
            read = await asyncio.to_thread(self._load_if_changed)
        except SettingsError as error:
            log.error("keys-unreadable", f"the keys read before stay in force: {error}")
            return
        if read is not self._read:
            self._read = read
            self._believed.clear()
            log.info("keys-read", "the API's keys or revoked tokens have changed", keys=sorted(read.keys))

    def _load_if_changed(self) -> _Read:
        return self._read if self._stamps() == self._read.stamps else self._load()

    def _load(self) -> _Read:
        stamps = self._stamps()
        try:
            keys = read_public_keys(self._jwks.read_bytes())
            revoked = frozenset(read_revoked(self._revoked.read_bytes())) if stamps[1] else frozenset()
        except OSError as error:
            raise SettingsError(f"RATCHET_API_PUBLIC_KEYS can't be read: {error}") from None
        except SettingsError as error:
            raise SettingsError(f"RATCHET_API_PUBLIC_KEYS={self._jwks}: {error}") from None
        return _Read(stamps, keys, revoked)

    def _stamps(self) -> tuple[Stamp, Stamp]:
        return _stamp(self._jwks), _stamp(self._revoked)


def _stamp(path: Path) -> Stamp:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_ino, seen.st_size


HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
"""Open to every probe, by whatever host name: they say nothing that is worth a rebound name."""
EVENTS = "/v1/events"
"""The route whose rule a socket goes by: it carries the same."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
CHALLENGE = 'Bearer realm="ratchet"'


async def caller(request: Request) -> Caller:
    """Return the request's caller; a route takes it as `Depends(caller)`."""
    found: Caller = request.scope["state"]["caller"]
    return found


CallerOf = Annotated[Caller, Depends(caller)]


def token_check(settings: FleetSettings) -> TokenCheck | None:
    """None where tokens are not asked for. Raises SettingsError where they would have to be, and for bad keys."""
    if settings.api_public_keys is not None:
        return TokenCheck(settings.api_public_keys, issuer=settings.api_issuer, audience=settings.api_audience)
    if not _is_loopback(settings.http_host):
        raise SettingsError(
            f"RATCHET_HTTP_HOST={settings.http_host} would let the whole network in without a token: make keys with "
            f"`ratchet token keys --out keys` and set RATCHET_API_PUBLIC_KEYS=keys/jwks.json, or listen on 127.0.0.1"
        )
    return None


class Guard:
    """Refuses with a Problem, or passes the request on with `state["caller"]` and `state["rule"]`."""

    def __init__(self, app: ASGIApp, matrix: Matrix, tokens: TokenCheck | None, hosts: Collection[str]) -> None:
        self._app = app
        self._matrix = matrix
        self._tokens = tokens
        self._hosts = LOOPBACK_NAMES.union(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._admit(scope)
        elif scope["type"] == "websocket":
            if not await self._let_in(scope, receive, send):
                return
        elif scope["type"] != "lifespan":
            raise Problem(404, "Not found", "this service speaks HTTP only")
        await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Refuse a socket whose page is of another site; whom the token names is asked by `state["admit"]`."""
        try:
            self._check_site(Headers(scope=scope))
        except Problem:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return False
        scope.setdefault("state", {})["admit"] = self._caller_of_events
        return True

    async def _caller_of_events(self, token: str | None) -> Caller:
        """Return who listens on a socket. Raises Problem: 401, or 403 as for GET /v1/events."""
        who = LOCAL
        if self._tokens is not None:
            try:
                who = await self._tokens.caller(token or "")
            except TokenRefused as error:
                raise Problem(401, "No token, or none that counts", str(error), "token") from None
        rule = self._matrix.find("GET", EVENTS)
        if rule is None or not rule.allows(who.role):
            raise Problem(403, "Not yours", "events are not for the role of this token", "role")
        return replace(who, own_only=True) if who.role in rule.operation.own_only else who

    async def _admit(self, scope: Scope) -> None:
        state = scope.setdefault("state", {})
        rule = self._matrix.find(scope["method"], scope["path"])
        if rule is not None and rule.operation.roles is None:
            if rule.path not in HEALTH_PATHS:
                self._check_host(Headers(scope=scope))
            state["rule"] = rule
            return
        state["caller"] = who = await self._caller(Headers(scope=scope))
        if rule is None:
            raise self._no_such(scope["path"])
        state["rule"] = rule
        if not rule.allows(who.role):
            roles = ", ".join(sorted(rule.operation.roles or ()))
            raise Problem(403, "Not yours", f"{rule.route} is for {roles}; this token is a {who.role}'s", "role")
        if who.is_bound and rule.operation.reach == "fleet":
            raise Problem(403, "Not yours", f"{rule.route} concerns all tenants; this token is of one", "tenant")
        if who.role in rule.operation.own_only:
            state["caller"] = replace(who, own_only=True)

    async def _caller(self, headers: Headers) -> Caller:
        self._check_site(headers)
        if self._tokens is None:
            return LOCAL
        try:
            return await self._tokens.caller(_bearer_token(headers))
        except TokenRefused as error:
            raise Problem(401, "No token, or none that counts", str(error), "token", _challenge(headers)) from None

    def _no_such(self, path: str) -> Problem:
        if methods := ", ".join(self._matrix.methods(path)):
            return Problem(405, "Method not allowed", f"this path takes {methods}", headers={"Allow": methods})
        return Problem(404, "Not found", "there is no such path here: GET /openapi.json lists them all")

    def _check_host(self, headers: Headers) -> str:
        host = headers.get("host", "")
        if self._tokens is None and _site(f"//{host}")[1] not in self._hosts:
            raise Problem(403, "Foreign host", "without tokens it answers to loopback names only", "foreign-host")
        return host

    def _check_site(self, headers: Headers) -> None:
        host = self._check_host(headers)
        if "origin" not in headers:
            return
        address, name = _site(headers["origin"])
        if address != host and name not in self._hosts:
            raise Problem(403, "Foreign origin", "pages of other sites may not call it (RATCHET_API_HOSTS)", "origin")


def _bearer_token(headers: Headers) -> str:
    given = headers.getlist("authorization") or [f"Bearer {key}" for key in headers.getlist("x-api-key")]
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token.strip():
        raise TokenRefused("send one header `Authorization: Bearer <token>`; `ratchet token issue` makes a token")
    return token.strip()


def _challenge(headers: Headers) -> dict[str, str]:
    """RFC 6750: no error code where no token was sent."""
    return {"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"' if "authorization" in headers else CHALLENGE}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _site(url: str) -> tuple[str, str]:
    """Return the URL's `host:port` and its host; empty where it is no URL."""
    try:
        parts = urlsplit(url)
        return parts.netloc, parts.hostname or ""
    except ValueError:
        return "", ""
