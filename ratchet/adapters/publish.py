"""Publish an adapter: a new immutable folder `<adapters>/<agent>/v1.0.N`, there whole or not at all.

Files go to a temporary folder, each fsynced, the manifest last; the folder is renamed into place, its parent fsynced.
A process killed on the way leaves only a temporary folder, which the next publisher sweeps away. Whether the adapter
is any good is not asked here (adapters/check.py), and it is not registered (`registration` gives the move for that).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from uuid import uuid4

from ratchet.adapters.folder import CONTENT_FILES, VERSION, adapter_sha256
from ratchet.adapters.manifest import CARD_NAME, KNOWN_FILES, MANIFEST_NAME, published_versions, read_card, version_key
from ratchet.adapters.registry import RegistryStore
from ratchet.files.append_file import explain
from ratchet.files.atomic_file import sync_folder
from ratchet.files.folder_lock import lock_folder
from ratchet.service import failpoint
from ratchet.service.errors import AdapterError
from schemas.records.adapter_card import AdapterCard, AdapterManifest, ManifestFile
from schemas.records.decision import Register

TEMPORARY = ".tmp-"
COPY_BYTES = 1024 * 1024


def publish_adapter(
    source_files: Mapping[str, Path | bytes], card: AdapterCard, adapters_dir: Path, agent_id: str
) -> Path:
    """The new version's folder, on disk and read-only. `source_files`: name in the folder -> file to copy, or content.

    With a `run_id` in the card that was published before, that folder: a trainer that died after publishing may just
    publish again. Blocks; raises AdapterError, RegistryError, DiskFull and JournalError.
    """
    _check_names(source_files)
    home = adapters_dir / agent_id
    try:
        with _temporary_folder(home) as temporary:
            files = {name: _write(temporary / name, source) for name, source in source_files.items()}
            files[CARD_NAME] = _write(temporary / CARD_NAME, card.encode())
            failpoint.reach("adapter-copied")
            with lock_folder(home):
                if earlier := _published_by(card, adapters_dir, agent_id):
                    return earlier
                manifest = AdapterManifest(
                    agent_id=agent_id, version=_next_version(adapters_dir, agent_id), files=files
                )
                return _put_in_place(temporary, manifest)
    except OSError as error:
        raise explain(error, home) from error


def registration(folder: Path, adapters_dir: Path) -> Register:
    """The move that makes a published folder known to the registry. Raises AdapterError and OSError."""
    card = read_card(folder)
    return Register(
        version=folder.name,
        sha256=adapter_sha256(folder),
        folder=str(folder.relative_to(adapters_dir)),
        parent=card.parent,
        base=card.base,
        research_agent=card.research_agent,
    )


def remove_tree(folder: Path) -> None:
    """Remove a folder of read-only files and folders; a link itself, never what it leads to. Gone is no error."""
    if folder.is_symlink():
        folder.unlink()
        return
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)


def _check_names(source_files: Mapping[str, Path | bytes]) -> None:
    for name in CONTENT_FILES:
        if name not in source_files:
            raise AdapterError(f"an adapter needs {name}: save it with PEFT, and give all the files it wrote")
    for name in source_files:
        if name == CARD_NAME or name not in KNOWN_FILES:
            raise AdapterError(
                f"{name!r} can't be part of an adapter: it is made here, or is no file that PEFT saves; leave it out"
            )


@contextmanager
def _temporary_folder(home: Path) -> Iterator[Path]:
    """A folder that a lock on it keeps from being swept away; gone after the block, unless it was renamed."""
    with lock_folder(home):
        _sweep(home)
        temporary = home / f"{TEMPORARY}{uuid4().hex[:12]}"
        temporary.mkdir()
        lock = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield temporary
    finally:
        remove_tree(temporary)
        os.close(lock)


def _sweep(home: Path) -> None:
    """Remove what killed publishers left: a temporary folder that nobody holds."""
    for leftover in home.glob(f"{TEMPORARY}*"):
        try:
            lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # its publisher has just given up
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(leftover)
        except BlockingIOError:
            continue  # its publisher is at work
        finally:
            os.close(lock)


def _write(path: Path, source: Path | bytes) -> ManifestFile:
    """Copies, hashing what is written, and returns when it is on disk. World-readable: agents may be other users."""
    path.parent.mkdir(parents=True, exist_ok=True)
    total = hashlib.sha256()
    with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as content, path.open("xb") as file:
        while block := content.read(COPY_BYTES):
            total.update(block)
            file.write(block)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
        return ManifestFile(size=file.tell(), sha256=total.hexdigest())


def _published_by(card: AdapterCard, adapters_dir: Path, agent_id: str) -> Path | None:
    if card.run_id is None:
        return None
    folders = [adapters_dir / agent_id / version for version in published_versions(adapters_dir, agent_id)]
    return next((folder for folder in folders if read_card(folder).run_id == card.run_id), None)


def _next_version(adapters_dir: Path, agent_id: str) -> str:
    """One above all that ever were: folders of any kind, and versions in the registry whose folders are gone."""
    folders = {path.name for path in (adapters_dir / agent_id).iterdir() if VERSION.fullmatch(path.name)}
    known = RegistryStore(adapters_dir).read().agent(agent_id).versions.keys()
    major, minor, patch = max(version_key(version) for version in folders | known)
    return f"v{major}.{minor}.{patch + 1}"


def _put_in_place(temporary: Path, manifest: AdapterManifest) -> Path:
    _write(temporary / MANIFEST_NAME, manifest.encode())
    for path, _, _ in os.walk(temporary, topdown=False):
        Path(path).chmod(0o555)
        sync_folder(Path(path))
    failpoint.reach("adapter-manifest")
    folder = temporary.rename(temporary.parent / manifest.version)
    failpoint.reach("adapter-renamed")
    sync_folder(folder.parent)
    sync_folder(folder.parent.parent)
    return folder
