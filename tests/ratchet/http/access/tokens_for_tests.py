"""A folder of keys, and tokens signed with them as no command would: for what must be refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt

from ratchet.http.access.keys import KeyFolder, public_jwk
from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import issue

OURS = {"issuer": "ratchet", "audience": "ratchet"}


class Mint:
    """`good` are tokens as `ratchet token issue` makes them; `forged` ones have whatever claims and header."""

    def __init__(self, folder: Path) -> None:
        self.keys = KeyFolder(folder)
        self.keys.make()

    def good(self, role: Role, name: str = "somebody", tenant: str | None = None) -> str:
        return issue(self.keys.signing_key(), name, role, 3600, tenant=tenant, **OURS)[0]

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Good ones, but for what is changed; a claim given as None is left out."""
        now = int(time.time())
        good = {"iss": "ratchet", "aud": "ratchet", "sub": "somebody", "jti": "id-1", "role": "operator"}
        claims = good | {"iat": now, "exp": now + 600} | changed
        return {name: value for name, value in claims.items() if value is not None}

    def forged(self, claims: dict[str, Any], **header: Any) -> str:
        key = self.keys.signing_key()
        kid = public_jwk(key.public_key())["kid"]
        return jwt.encode(claims, key, "EdDSA", {"kid": kid} | header)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
