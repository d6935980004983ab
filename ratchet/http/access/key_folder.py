"""The folder of the keys: signing-key.json (private, 0600), jwks.json (public), revoked.txt (ids of refused tokens).

Services get jwks.json and revoked.txt; the signing key stays with whoever issues tokens. Every step of a rotation
leaves a folder that works: the new public key is there before a token is signed with the new private one.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ratchet.files.append_file import disk_errors
from ratchet.files.atomic_file import replace_file
from ratchet.http.access.keys import jwks, private_jwk, public_jwk, public_jwks, read_private_key
from ratchet.service.errors import SettingsError

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
