"""The secrets that draw the arms of experiments, one for each, all made from one key in the folder of keys.

A client who could compute the draw would choose ids that send easy tasks to the candidate. So the draw is keyed: the
plan names the SHA-256 of the secret, and the decision that ends the experiment tells the secret, by which everybody can
draw again. The key is made when the first experiment begins. Blocks on the disk.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from ratchet.files.append_file import disk_errors
from ratchet.files.atomic_file import replace_file
from ratchet.service.errors import RegistryError
from schemas.records.decision import RunningExperiment

DRAW_KEY = "draw-key"
KEY_BYTES = 32


class DrawSecrets:
    def __init__(self, keys_dir: Path) -> None:
        self._path = keys_dir / DRAW_KEY

    def commitment(self, experiment_id: str) -> str:
        """The SHA-256 of a new experiment's secret. Makes the key where there is none; raises RegistryError."""
        return _sha256(_secret(self._key() or self._make_key(), experiment_id))

    def secret(self, running: RunningExperiment) -> str | None:
        """The secret that its plan is committed to, empty where it has none; None where the key is gone or another.

        Raises RegistryError.
        """
        if is_committed_to(running, ""):
            return ""
        if (key := self._key()) is None:
            return None
        found = _secret(key, running.experiment_id)
        return found if is_committed_to(running, found) else None

    def secret_named(self, name: str, sha256: str | None) -> str | None:
        """The secret of other draws than an experiment's, which `commitment` was made of; None where the key is gone
        or another. Raises RegistryError.
        """
        if sha256 is None:
            return ""
        found = _secret(key, name) if (key := self._key()) is not None else None
        return found if found is not None and _sha256(found) == sha256 else None

    def _key(self) -> bytes | None:
        try:
            with disk_errors(self._path):
                return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RegistryError(f"the key that draws the arms of experiments can't be read: {error}") from None

    def _make_key(self) -> bytes:
        key = secrets.token_bytes(KEY_BYTES)
        try:
            with disk_errors(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self._path, key, mode=0o600)
        except OSError as error:
            raise RegistryError(
                f"the key that draws the arms of experiments can't be made: {error}; set RATCHET_DECISION_KEYS to a "
                "folder that can be written"
            ) from None
        return key


def is_committed_to(running: RunningExperiment, secret: str) -> bool:
    """Return whether the secret is the one that the plan named before the first draw; of an older plan, the empty
    one."""
    plan = running.parameters.get("plan")
    sha256 = plan.get("draw_sha256") if isinstance(plan, dict) else None
    return secret == "" if sha256 is None else _sha256(secret) == sha256


def _secret(key: bytes, experiment_id: str) -> str:
    return hmac.new(key, experiment_id.encode(), hashlib.sha256).hexdigest()


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
