"""Where an adapter lies, what identifies its content, and the name it is served under. Reads files, writes none."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ratchet.service.errors import AdapterError

VERSION = re.compile(r"v\d+\.\d+\.\d+")
CONTENT_FILES = ("adapter_config.json", "adapter_model.safetensors")


def adapter_folder(adapters_dir: Path, agent_id: str, version: str) -> Path:
    """`<adapters>/<agent>/<version>`. Raises AdapterError for a version that is not one, or has no adapter in it."""
    if not VERSION.fullmatch(version):
        raise AdapterError(f"{version!r} is no adapter version: it should look like v1.0.1")
    folder = adapters_dir / agent_id / version
    for name in CONTENT_FILES:
        if not (folder / name).is_file():
            raise AdapterError(
                f"adapter {version} of agent {agent_id} has no {folder / name}: restore it, or roll back"
            )
    return folder


def adapter_sha256(folder: Path) -> str:
    """Of the adapter's configuration and weights: what makes it answer as it does. The adapter card is not in it."""
    total = hashlib.sha256()
    for name in CONTENT_FILES:
        with (folder / name).open("rb") as file:
            total.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def served_name(agent_id: str, version: str, sha256: str) -> str:
    """A name that never means other weights."""
    return f"{agent_id}-{version}-{sha256[:8]}"
