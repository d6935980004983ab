"""A token as it is given to a command, and looked at as a service would."""

from __future__ import annotations

import sys
from pathlib import Path

from ratchet.cli.token.keys_here import keys_here
from ratchet.http.access.key_folder import read_revoked
from ratchet.http.access.keys import read_public_keys
from ratchet.http.access.tokens import Claims, TokenRefused, check
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings


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
