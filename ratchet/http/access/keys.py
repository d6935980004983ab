"""Ed25519 keys as JSON Web Keys (RFC 8037), and the public set (JWKS) that the services check tokens with.

A key's id (`kid`) is its thumbprint (RFC 7638), so two keys never share one. Pure: no files here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ratchet.service.errors import SettingsError

KEY_BYTES = 32

PublicKeys = Mapping[str, Ed25519PublicKey]
"""By key id."""


def public_jwk(key: Ed25519PublicKey) -> dict[str, str]:
    x = _base64url(key.public_bytes_raw())
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": thumbprint(x), "use": "sig", "alg": "EdDSA"}


def private_jwk(key: Ed25519PrivateKey) -> dict[str, str]:
    return public_jwk(key.public_key()) | {"d": _base64url(key.private_bytes_raw())}


def thumbprint(x: str) -> str:
    """RFC 7638 of an Ed25519 key whose public part is `x` (base64url)."""
    members = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":"))
    return _base64url(hashlib.sha256(members.encode()).digest())


def read_public_keys(jwks: bytes) -> dict[str, Ed25519PublicKey]:
    """Keys of other kinds are passed over. Raises SettingsError where there is no Ed25519 key, or a private one."""
    keys: dict[str, Ed25519PublicKey] = {}
    for jwk in _keys_of(jwks):
        if "d" in jwk:
            raise SettingsError("the set of public keys holds a private key: give the services jwks.json, and make new")
        if jwk.get("kty") == "OKP" and jwk.get("crv") == "Ed25519":
            keys[str(jwk.get("kid"))] = Ed25519PublicKey.from_public_bytes(_bytes_of(jwk, "x"))
    if not keys:
        raise SettingsError("the set of public keys holds no Ed25519 key: `ratchet token keys` makes one")
    return keys


def read_private_key(jwk: bytes) -> Ed25519PrivateKey:
    """Raises SettingsError if it is none."""
    return Ed25519PrivateKey.from_private_bytes(_bytes_of(_object(jwk), "d"))


def jwks(keys: Iterable[Mapping[str, str]]) -> bytes:
    return json.dumps({"keys": [dict(key) for key in keys]}, indent=2).encode() + b"\n"


def public_jwks(content: bytes) -> list[dict[str, Any]]:
    """The keys of a set as they are written."""
    return _keys_of(content)


def _keys_of(content: bytes) -> list[dict[str, Any]]:
    keys = _object(content).get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise SettingsError('this is no set of keys (JWKS): it needs {"keys": [{…}, …]}')
    return keys


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise SettingsError("this is no JSON: a key is made by `ratchet token keys`") from None
    if not isinstance(found, dict):
        raise SettingsError("this is no JSON object: a key is made by `ratchet token keys`")
    return found


def _bytes_of(jwk: Mapping[str, Any], member: str) -> bytes:
    try:
        value = str(jwk[member])
        decoded = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except (KeyError, ValueError):
        decoded = b""
    if len(decoded) != KEY_BYTES:
        raise SettingsError(f"a key's member {member!r} is not {KEY_BYTES} bytes in base64url: make new keys")
    return decoded


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
