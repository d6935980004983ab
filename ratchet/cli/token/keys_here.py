"""Which folder of keys a command means: the one it names, else that of the settings, else `keys`."""

from __future__ import annotations

from pathlib import Path

from ratchet.http.access.key_folder import KeyFolder
from ratchet.service.settings import FleetSettings

DEFAULT = Path("keys")


def keys_here(named: Path | None, settings: FleetSettings) -> KeyFolder:
    if named is not None:
        return KeyFolder(named)
    if (public := settings.api_public_keys) is not None:
        return KeyFolder(public if public.is_dir() else public.parent)
    return KeyFolder(DEFAULT)
