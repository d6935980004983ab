"""What the token commands are given: a folder of keys, a lifetime such as 30m, a token."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ratchet.cli.terminal.errors import UsageError
from ratchet.http.access.key_folder import KeyFolder, read_revoked
from ratchet.http.access.keys import read_public_keys
from ratchet.http.access.tokens import Claims, TokenRefused, check
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings

DEFAULT = Path("keys")


def keys_here(named: Path | None, settings: FleetSettings) -> KeyFolder:
    if named is not None:
        return KeyFolder(named)
    if (public := settings.api_public_keys) is not None:
        return KeyFolder(public if public.is_dir() else public.parent)
    return KeyFolder(DEFAULT)


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str) -> int:
    """Raises UsageError."""
    match = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no lifetime: a number and s, m, h or d, as in 30m or 8h")
    return int(match[1]) * UNITS[match[2]]


def given(token: str) -> str:
    return sys.stdin.read().strip() if token == "-" else token


def checked(token: str, keys: Path | None) -> Claims:
    """Raises TokenRefused, and SettingsError where there are no keys to look with."""
    settings = FleetSettings.read()
    folder = keys_here(keys, settings)
    try:
        public = read_public_keys(folder.jwks.read_bytes())
        revoked = read_revoked(folder.revoked.read_bytes()) if folder.revoked.exists() else {}
    except OSError as error:
        raise SettingsError(f"no keys to check with: {error}. `ratchet token keys` makes some") from None
    claims = check(token, public, issuer=settings.api_issuer, audience=settings.api_audience)
    if claims.jti in revoked:
        raise TokenRefused("the token was revoked: issue a new one")
    return claims
