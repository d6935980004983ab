"""Signs decisions and records the head of the ledger: the keys and the head, both kept apart from the ledger.

A signed line has `key`, an Ed25519 public key, and `signature`, over the line's canonical JSON without `sha256` and
`signature`. Every line after the first signed one is signed by the same key, until a line of the move `sign_with` names
the next one: signed by the key it replaces, or, where that one is lost, by the new one, which the folder of keys must
hold then. The head (`decisions-head.json` in the folder of the logs) is how many decisions there are and the last one's
sha256, so that a ledger cut short, or written anew with a stolen key, is found.

Left out: protection from a writer of the folder of keys, who may sign. Blocks on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.utils import base64url_decode, base64url_encode
from pydantic import Field

from ratchet.files.append_file import disk_errors
from ratchet.files.atomic_file import replace_file
from ratchet.files.hash_chain import canonical
from ratchet.http.access.keys import KeyFolder, public_jwks
from ratchet.service.errors import RegistryError, SettingsError
from schemas.messages.base import DecodeError, Message, Sha256

HEAD = "decisions-head.json"
WAY_ON = "if what is missing is lost for good, `ratchet adapters accept` takes the ledger as it stands, under your name"


class LedgerHead(Message):
    """The length of the ledger as its last writer saw it; it may lag behind after a crash."""

    TYPE = "decisions_head.v1"

    signed_after: int = Field(ge=0, description="Lines up to this number are taken as they are; later ones are signed.")
    sequence: int = Field(ge=0)
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Signer:
    private: Ed25519PrivateKey

    @property
    def key(self) -> str:
        """The public key, in base64url."""
        return base64url_encode(self.private.public_key().public_bytes_raw()).decode()

    def sign(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields with `key` and `signature`."""
        content = {**fields, "key": self.key}
        return content | {"signature": base64url_encode(self.private.sign(canonical(content))).decode()}


class Signing:
    """The places of the keys and of the head of one ledger."""

    def __init__(self, keys_dir: Path, logs_dir: Path) -> None:
        self._folder = KeyFolder(keys_dir)
        self.keys_dir = keys_dir
        self._head = logs_dir / HEAD

    def keys(self) -> list[str]:
        """Public keys that may sign, the newest first. Raises RegistryError."""
        try:
            with disk_errors(self._folder.jwks):
                return [str(jwk.get("x")) for jwk in public_jwks(self._folder.jwks.read_bytes())]
        except FileNotFoundError:
            return []
        except (OSError, SettingsError) as error:
            raise RegistryError(f"the public keys of the decisions can't be read: {error}") from None

    def signer(self) -> Signer | None:
        """None where there is no private key. Raises RegistryError where it can't be read."""
        if not self._folder.exists():
            return None
        try:
            return Signer(self._folder.signing_key())
        except SettingsError as error:
            raise RegistryError(f"decisions are signed, and {error}") from None

    def make_key(self) -> Signer:
        """A new pair, the newest from now on. Raises RegistryError, DiskFull, JournalError."""
        try:
            self._folder.make()
            return Signer(self._folder.signing_key())
        except (SettingsError, OSError) as error:
            raise RegistryError(
                f"the key that decisions are signed with can't be made in {self.keys_dir}: {error}; set "
                f"RATCHET_DECISION_KEYS to a folder that can be written"
            ) from None

    def head(self) -> LedgerHead | None:
        """None where none was written yet, or the logs were lost. Raises RegistryError."""
        try:
            with disk_errors(self._head):
                return LedgerHead.decode(self._head.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, DecodeError) as error:
            raise RegistryError(f"{self._head} can't be read: {error}; {WAY_ON}") from None

    def set_head(self, head: LedgerHead) -> None:
        """Raises DiskFull and JournalError."""
        self._head.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._head, head.encode() + b"\n")


def check_signature(
    fields: Mapping[str, Any], expected: str | None, *, required: bool, trusted: Callable[[], Collection[str]] | None
) -> None:
    """Check the signature of a line that follows those signed with `expected` (None: none was signed so far).

    `trusted`: the first signature's key, and a new key that no old one names, must be among these; None: any key.

    Raises ValueError saying what is wrong, RegistryError where the keys can't be read.
    """
    key, signature = fields.get("key"), fields.get("signature")
    if not isinstance(key, str) or not isinstance(signature, str):
        if required or expected is not None or key is not None or signature is not None:
            raise ValueError("its signature is missing")
        return
    if key != expected:
        if expected is not None and (fields["move"]["kind"], fields["move"].get("key")) != ("sign_with", key):
            raise ValueError(f"it is signed by another key ({key[:8]}…) than the lines before it ({expected[:8]}…)")
        if trusted is not None and key not in trusted():
            raise ValueError(f"it is signed by a key that nobody here knows ({key[:8]}…)")
    content = {name: value for name, value in fields.items() if name not in ("sha256", "signature")}
    try:
        public = Ed25519PublicKey.from_public_bytes(base64url_decode(key))
        public.verify(base64url_decode(signature), canonical(content))
    except (InvalidSignature, ValueError):
        raise ValueError(f"its signature is not that of its key ({key[:8]}…)") from None
