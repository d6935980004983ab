"""Checks tokens against files that change while the service runs: keys rotate and tokens are revoked without a restart.

The files are checked again at most once a second, and before a key that they may have by now is called unknown. One
that can't be read leaves in force what was read before.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ratchet.http.access.key_folder import JWKS, REVOKED, read_revoked
from ratchet.http.access.keys import PublicKeys, read_public_keys
from ratchet.http.access.roles import Caller
from ratchet.http.access.tokens import EXPIRED, LEEWAY_S, Claims, TokenRefused, UnknownKey, check
from ratchet.service.errors import SettingsError
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
