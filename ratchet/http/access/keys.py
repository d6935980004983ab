"""Ed25519 keys as JSON Web Keys (RFC 8037), and the public set (JWKS) that the services check tokens with.

A key's id (`kid`) is its thumbprint (RFC 7638), so two keys never share one. Pure: no files here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt import PyJWTError
from jwt.algorithms import OKPAlgorithm
from jwt.utils import base64url_encode

from ratchet.service.errors import SettingsError

Key = TypeVar("Key", Ed25519PublicKey, Ed25519PrivateKey)
PublicKeys = Mapping[str, Ed25519PublicKey]
"""By key id."""


def public_jwk(key: Ed25519PublicKey) -> dict[str, Any]:
    members = OKPAlgorithm.to_jwk(key, as_dict=True)
    canonical = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    kid = base64url_encode(hashlib.sha256(canonical).digest()).decode()
    return {**members, "kid": kid, "use": "sig", "alg": "EdDSA"}


def private_jwk(key: Ed25519PrivateKey) -> dict[str, Any]:
    return public_jwk(key.public_key()) | OKPAlgorithm.to_jwk(key, as_dict=True)


def read_public_keys(jwks: bytes) -> dict[str, Ed25519PublicKey]:
    """Keys of other kinds are passed over. Raises SettingsError where there is no Ed25519 key, or a private one."""
    keys: dict[str, Ed25519PublicKey] = {}
    for jwk in public_jwks(jwks):
        if "d" in jwk:
            raise SettingsError("the set of public keys holds a private key: give the services jwks.json, and make new")
        if jwk.get("kty") == "OKP" and jwk.get("crv") == "Ed25519":
            keys[str(jwk.get("kid"))] = _key_of(jwk, Ed25519PublicKey)  # type: ignore[type-abstract]
    if not keys:
        raise SettingsError("the set of public keys holds no Ed25519 key: `ratchet token keys` makes one")
    return keys


def read_private_key(jwk: bytes) -> Ed25519PrivateKey:
    """Raises SettingsError if it is none."""
    return _key_of(_object(jwk), Ed25519PrivateKey)  # type: ignore[type-abstract]


def jwks(keys: Iterable[Mapping[str, Any]]) -> bytes:
    return json.dumps({"keys": [dict(key) for key in keys]}, indent=2).encode() + b"\n"


def public_jwks(content: bytes) -> list[dict[str, Any]]:
    """The keys of a set as they are written."""
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


def _key_of(jwk: Mapping[str, Any], kind: type[Key]) -> Key:
    try:
        key = OKPAlgorithm.from_jwk(dict(jwk))
    except (PyJWTError, TypeError, ValueError, AttributeError):
        key = None
    if not isinstance(key, kind):
        raise SettingsError("a key's members are not those of an Ed25519 key in base64url: make new keys")
    return key
