"""The manifest of an adapter folder: read it, hold the folder against it, list what is published. Writes nothing.

A folder is an adapter only if its manifest is whole, names this agent and version, and lists exactly what is there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ratchet.adapters.folder import CONFIG_NAME, VERSION, WEIGHTS_NAME, file_names, open_file, read_file
from ratchet.adapters.limits import LARGEST_FILE, MOST_FILES
from ratchet.service.errors import AdapterError
from schemas.messages.base import DecodeError
from schemas.records.adapter_card import AdapterCard, AdapterManifest

MANIFEST_NAME = "manifest.json"
CARD_NAME = "adapter_card.json"
TRAINING_REPORT = "training_report.json"
KNOWN_FILES = frozenset(
    {
        *(CONFIG_NAME, WEIGHTS_NAME, CARD_NAME, TRAINING_REPORT, "README.md"),
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
        *("vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "generation_config.json"),
        *("trainer_state.json", "all_results.json", "train_results.json", "eval_results.json"),
    }
)
"""Files that an adapter may consist of: those that PEFT, transformers and TRL save, and ours. None runs code when it
is loaded, as pickles do, and an engine or a person meets no name that somebody chose to deceive."""


def read_manifest(folder: Path) -> AdapterManifest:
    """Raises AdapterError if there is none, or it is torn, or that of another folder."""
    try:
        manifest = AdapterManifest.decode(read_file(folder, MANIFEST_NAME))
    except FileNotFoundError:
        raise AdapterError(
            f"{folder} has no {MANIFEST_NAME}, so it is no published adapter: publish it, or restore it"
        ) from None
    except (OSError, DecodeError) as error:
        raise AdapterError(f"{folder / MANIFEST_NAME} can't be read ({error}): restore the folder") from None
    if (manifest.agent_id, manifest.version) != (folder.parent.name, folder.name):
        raise AdapterError(
            f"{folder} holds {manifest.version} of agent {manifest.agent_id}: it was copied or renamed by hand; "
            f"publish it as a new version instead"
        )
    return manifest


def read_card(folder: Path) -> AdapterCard:
    """Raises AdapterError."""
    try:
        return AdapterCard.decode(read_file(folder, CARD_NAME))
    except (OSError, DecodeError) as error:
        raise AdapterError(f"{folder / CARD_NAME} can't be read ({error}): restore the folder") from None


def file_faults(folder: Path, manifest: AdapterManifest) -> list[str]:
    """One sentence for each file that is missing, too many, of another size or not known. Reads no content.

    Raises OSError and AdapterError.
    """
    if len(manifest.files) > MOST_FILES or sum(file.size for file in manifest.files.values()) > LARGEST_FILE:
        return [f"{folder / MANIFEST_NAME} lists more than {MOST_FILES} files or {LARGEST_FILE:,} bytes: publish less"]
    extra = file_names(folder) - manifest.files.keys() - {MANIFEST_NAME}
    faults = [f"{folder / name} is not in the manifest: an adapter never changes; move it away" for name in extra]
    found = ((folder / name, _file_fault(folder, name, file.size)) for name, file in manifest.files.items())
    return sorted([*faults, *(f"{path} {fault}" for path, fault in found if fault)])


def _file_fault(folder: Path, name: str, size: int) -> str | None:
    if name not in KNOWN_FILES:
        return "is no file that adapters have: publish what PEFT saved, without it"
    try:
        with open_file(folder, name) as file:
            found = os.fstat(file.fileno()).st_size
    except (OSError, AdapterError):
        return "is missing or no plain file: restore it, or roll back"
    return None if found == size else f"has {found:,} bytes, not {size:,}: restore it, or roll back"


def changed_files(folder: Path, manifest: AdapterManifest) -> Iterator[str]:
    """One sentence for each file whose content is another than the manifest's. Reads every byte.

    Raises OSError and AdapterError.
    """
    for name, expected in sorted(manifest.files.items()):
        with open_file(folder, name) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected.sha256:
            sums = f"sha256 {found[:8]}…, not {expected.sha256[:8]}…"
            yield f"{folder / name} was changed ({sums}): restore it, or roll back"


def published_versions(adapters_dir: Path, agent_id: str) -> list[str]:
    """Return the versions in order of number.

    One without a whole manifest whose files are there in their sizes is ignored.
    """
    folder = adapters_dir / agent_id
    found = [path for path in (folder.iterdir() if folder.is_dir() else ()) if VERSION.fullmatch(path.name)]
    return sorted((path.name for path in found if _looks_whole(path)), key=version_key)


@lru_cache
def version_key(version: str) -> tuple[int, ...]:
    """v1.0.10 comes after v1.0.9."""
    return tuple(int(part) for part in version[1:].split("."))


def _looks_whole(folder: Path) -> bool:
    try:
        files = read_manifest(folder).files
        return not any(_file_fault(folder, name, file.size) for name, file in files.items())
    except (AdapterError, OSError):
        return False
