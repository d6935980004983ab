"""The key pair of the API, made with the stack: its private half is in the encrypted state, for whoever issues tokens.

Services get the public set (JWKS) and the ids of revoked tokens. The format is that of `ratchet token keys`
(ratchet/http/access/keys.py); a test holds the two together.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence

import pulumi
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pulumi_random import RandomBytes

from infra.process import Files, Mount
from infra.settings import Api, PublicKey

SEED_BYTES = 32
KEYS_AT = "/etc/ratchet/api-keys"
JWKS, REVOKED = "jwks.json", "revoked.txt"


class ApiKeys:
    def __init__(self, api: Api) -> None:
        made = RandomBytes("api-signing-key", length=SEED_BYTES, keepers={"rotation": api.rotation})
        seed: pulumi.Output[str] = pulumi.Output.secret(made.base64)
        revoked: pulumi.Output[str] = pulumi.Output.secret(
            "".join(f"{one.token_id} {one.expires_at}\n" for one in api.revoked)
        )
        self.signing_key = seed.apply(private_key)
        self.files = {JWKS: seed.apply(lambda text: public_set(text, api.trusted_keys)), REVOKED: revoked}
        """The `secret_files` of processes that check tokens."""


MOUNT = Mount(Files(secret=True), KEYS_AT, read_only=True)


def private_key(seed: str) -> str:
    """The private JWK (RFC 8037) of a seed in base64."""
    return json.dumps(_public(seed) | {"d": _base64url(base64.b64decode(seed))}) + "\n"


def public_set(seed: str, trusted: Sequence[PublicKey]) -> str:
    """The JWKS of the seed's public key and of others whose tokens are taken too."""
    others = [key.model_dump() for key in trusted]
    return json.dumps({"keys": [_public(seed), *others]}, indent=1) + "\n"


def _public(seed: str) -> dict[str, str]:
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(seed)).public_key()
    x = _base64url(key.public_bytes_raw())
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": thumbprint(x), "use": "sig", "alg": "EdDSA"}


def thumbprint(x: str) -> str:
    """The thumbprint of a key by RFC 7638."""
    members = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":"))
    return _base64url(hashlib.sha256(members.encode()).digest())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
