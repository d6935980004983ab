"""Ed25519 keys as JSON Web Keys (RFC 8037), and the public set (JWKS) that the services check tokens with.

A key's id (`kid`) is its thumbprint (RFC 7638), so two keys never share one. Pure: no files here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt import PyJWTError
from jwt.algorithms import OKPAlgorithm
from jwt.utils import base64url_encode

from ratchet.service.errors import SettingsError

NO_KEY = "a key's members are not those of an Ed25519 key in base64url: make new keys"
PublicKeys = Mapping[str, Ed25519PublicKey]
"""The public keys by key id."""


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
            if not isinstance(key := _key_of(jwk), Ed25519PublicKey):
                raise SettingsError(NO_KEY)
            keys[str(jwk.get("kid"))] = key
    if not keys:
        raise SettingsError("the set of public keys holds no Ed25519 key: `ratchet token keys` makes one")
    return keys


def read_private_key(jwk: bytes) -> Ed25519PrivateKey:
    """Raises SettingsError if it is none."""
    if not isinstance(key := _key_of(_object(jwk)), Ed25519PrivateKey):
        raise SettingsError(NO_KEY)
    return key


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


def _key_of(jwk: Mapping[str, Any]) -> object:
    """Return the key, or None for what is no Ed25519 key."""
    try:
        return OKPAlgorithm.from_jwk(dict(jwk))
    except (PyJWTError, TypeError, ValueError, AttributeError):
        return None
