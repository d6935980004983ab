"""Writes a backup as a tar archive, encrypted where a key is given, and restores one into empty folders.

The last member is a manifest with the size and the sha256 of every file. A restore puts files in place only after the
manifest was found and every sum was right, so an archive that was cut off or changed restores nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from ratchet.files.atomic_file import replace_file, sync_folder
from ratchet.logs.names import LAST_BACKUP
from services.cli.backup.encryption import Decrypting, Encrypting, open_plain
from services.cli.backup.snapshot import KEYS, LOGS, OpenFile, snapshot
from services.cli.terminal import CommandError

MANIFEST = "backup.json"
RESTORING = ".restoring"
VERSION = 1


def write_backup(target: Path, folders: Mapping[str, Path], key: bytes | None) -> dict[str, Any]:
    """Write `target` whole or not at all, then note the time in the logs folder. Returns the manifest.

    The folder of keys is part of it only where it is encrypted.
    """
    kept = {name: folder for name, folder in folders.items() if name != KEYS or key is not None}
    partial = target.with_name(f"{target.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            snapshot(kept) as files,
            os.fdopen(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as out,
        ):
            made_at = time.time()
            manifest = {"version": VERSION, "made_at": made_at, "files": _write_archive(out, files, key, made_at)}
            out.flush()
            os.fsync(out.fileno())
        partial.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise CommandError(f"no backup was made in {target}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    note = {"made_at": made_at, "bytes": target.stat().st_size}
    replace_file(folders[LOGS] / LAST_BACKUP, json.dumps(note).encode())
    return manifest


def _write_archive(
    out: BinaryIO, files: list[OpenFile], key: bytes | None, made_at: float
) -> dict[str, dict[str, Any]]:
    stream = Encrypting(out, key) if key is not None else out
    with tarfile.open(fileobj=cast(BinaryIO, stream), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        listed = {file.name: _add(tar, file) for file in files}
        text = json.dumps({"version": VERSION, "made_at": made_at, "files": listed}).encode()
        tar.addfile(_member(MANIFEST, len(text), 0o600, made_at), io.BytesIO(text))
    if isinstance(stream, Encrypting):
        stream.close()
    return listed


def _add(tar: tarfile.TarFile, file: OpenFile) -> dict[str, Any]:
    summed = hashlib.sha256()

    def blocks() -> Any:
        for block in file.blocks():
            summed.update(block)
            yield block

    tar.addfile(_member(file.name, file.size, file.mode, file.changed), cast(BinaryIO, _Blocks(blocks())))
    return {"bytes": file.size, "sha256": summed.hexdigest()}


class _Blocks:
    """Blocks as a file that tarfile reads."""

    def __init__(self, blocks: Any) -> None:
        self._blocks = blocks
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (block := next(self._blocks, b"")):
            self._rest += block
        read, self._rest = self._rest[:size], self._rest[size:]
        return read


def _member(name: str, size: int, mode: int, changed: float) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, mode, int(changed)
    return member


def restore_backup(source: Path, folders: Mapping[str, Path], key: bytes | None) -> dict[str, Any]:
    """Put the files of a backup into these folders, which must be empty. Returns its manifest. Raises CommandError."""
    for folder in folders.values():
        if folder.is_dir() and any(one.name not in ("README.md", RESTORING) for one in folder.iterdir()):
            raise CommandError(f"{folder} is not empty: stop the fleet, and move that folder away before you restore")
    try:
        with source.open("rb") as file:
            manifest = _unpack(open_plain(file, key), folders)
        for folder in folders.values():
            _put_in_place(folder)
    except (OSError, tarfile.TarError) as error:
        raise CommandError(f"{source} can't be restored: {error}. Nothing was put in place") from error
    finally:
        for folder in folders.values():
            shutil.rmtree(folder / RESTORING, ignore_errors=True)
    return manifest


def _unpack(stream: BinaryIO | Decrypting, folders: Mapping[str, Path]) -> dict[str, Any]:
    found: dict[str, str] = {}
    reader = BufferedReader(stream) if isinstance(stream, Decrypting) else stream
    with tarfile.open(fileobj=reader, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if member.name == MANIFEST and content is not None:
                return _check_sums(json.loads(content.read()), found)
            root, _, name = member.name.partition("/")
            if content is None or root not in folders or ".." in Path(name).parts or Path(name).is_absolute():
                raise CommandError(f"{member.name!r} is no file of a backup")
            found[member.name] = _copy(content, folders[root] / RESTORING / name, member.mode & 0o777)
    raise CommandError("the backup has no end: it was cut off. Nothing was put in place")


def _copy(content: Any, path: Path, mode: int) -> str:
    """Returns the sha256 of what was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    summed = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as out:
        while block := content.read(1 << 20):
            summed.update(block)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    return summed.hexdigest()


def _check_sums(manifest: dict[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest. Raises CommandError for a file that is missing, changed or too many."""
    wanted = {name: one["sha256"] for name, one in manifest["files"].items()}
    if wrong := sorted({name for name, _ in wanted.items() ^ found.items()}):
        raise CommandError(f"{wrong[0]} of the backup is not what was backed up. Nothing was put in place")
    return manifest


def _put_in_place(folder: Path) -> None:
    with suppress(FileNotFoundError):
        for one in sorted((folder / RESTORING).iterdir()):
            one.rename(folder / one.name)
        sync_folder(folder)
