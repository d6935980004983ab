"""Ed25519 keys as JSON Web Keys (RFC 8037), and the folder that holds them.

A key's id (`kid`) is its thumbprint (RFC 7638), so two keys never share one. In the folder lie signing-key.json
(private, 0600), jwks.json (public, the set that the services check tokens with), revoked.txt (ids of refused tokens).
Services get jwks.json and revoked.txt; the signing key stays with whoever issues tokens. Every step of a rotation
leaves a folder that works: the new public key is there before a token is signed with the new private one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt import PyJWTError
from jwt.algorithms import OKPAlgorithm
from jwt.utils import base64url_encode

from ratchet.files.append_file import disk_errors
from ratchet.files.atomic_file import replace_file
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


SIGNING_KEY = "signing-key.json"
JWKS = "jwks.json"
REVOKED = "revoked.txt"


class KeyFolder:
    """Blocks on the disk. Raises SettingsError, JournalError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jwks = folder / JWKS
        self.revoked = folder / REVOKED

    def exists(self) -> bool:
        return (self.folder / SIGNING_KEY).exists()

    def key_ids(self) -> list[str]:
        """Return the ids of the public keys, the newest first; tokens signed with any of them are taken."""
        return [str(key.get("kid")) for key in self._public()]

    def make(self) -> str:
        """A new pair; the public keys before it stay, so that tokens in use stay good. Returns the new key's id."""
        self._make_folder()
        key = Ed25519PrivateKey.generate()
        public = public_jwk(key.public_key())
        replace_file(self.jwks, jwks([public, *self._public()]))
        replace_file(self.folder / SIGNING_KEY, json.dumps(private_jwk(key)).encode() + b"\n", mode=0o600)
        return str(public["kid"])

    def retire(self) -> list[str]:
        """Drop all public keys but that of the signing key: tokens signed with them are refused. Returns their ids."""
        current = public_jwk(self.signing_key().public_key())
        retired = [kid for kid in self.key_ids() if kid != current["kid"]]
        replace_file(self.jwks, jwks([current]))
        return retired

    def signing_key(self) -> Ed25519PrivateKey:
        path = self.folder / SIGNING_KEY
        try:
            with disk_errors(path):
                return read_private_key(path.read_bytes())
        except FileNotFoundError:
            raise SettingsError(f"there is no signing key in {self.folder}: `ratchet token keys` makes one") from None
        except OSError as error:
            raise SettingsError(f"the signing key can't be read: {error}") from None
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None

    def revoke(self, token_id: str, expires_at: int) -> None:
        """Refuse the token from now on; ids of tokens that have expired meanwhile are forgotten."""
        path = self.revoked
        now = int(time.time())
        known = read_revoked(path.read_bytes()) if path.exists() else {}
        kept = {known_id: until for known_id, until in known.items() if until > now} | {token_id: expires_at}
        replace_file(path, "".join(f"{one} {until}\n" for one, until in sorted(kept.items())).encode())

    def _public(self) -> list[dict[str, str]]:
        return public_jwks(self.jwks.read_bytes()) if self.jwks.exists() else []

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"the folder of the keys can't be made: {error}") from None


def read_revoked(content: bytes) -> dict[str, int]:
    """Token id → second at which it expires. Raises SettingsError for a line that is not `<id> <second>`."""
    revoked: dict[str, int] = {}
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        token_id, _, until = line.partition(" ")
        if not token_id or not until.isdecimal():
            raise SettingsError(f"line {number} is not an id and a second: `ratchet token revoke` writes them")
        revoked[token_id] = int(until)
    return revoked
