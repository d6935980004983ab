"""Writes a backup as a tar archive, encrypted where a key is given, and restores one into empty folders.

The last member is a manifest with the size and the sha256 of every file. A restore puts files in place only after the
manifest was found and every sum was right, so an archive that was cut off or changed restores nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from ratchet.files.atomic_file import replace_file, sync_folder
from ratchet.files.folder_lock import FolderLock
from ratchet.logs.leadership import CHANGES
from ratchet.logs.names import LAST_BACKUP
from services.cli.backup.encryption import Decrypting, Encrypting, open_plain
from services.cli.terminal import CommandError

KEYS, ADAPTERS, LOGS = "decision-keys", "adapters", "logs"
"""The folders of a backup, in the order in which they are opened."""
LEFT_OUT = (".sqlite", ".sqlite-wal", ".sqlite-shm", ".tmp", ".lock", ".changes", ".sock")
BOTH_LOCKS_WITHIN_S = 60.0
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file as it was at the moment of the snapshot: its first `size` bytes."""

    name: str
    fd: int
    size: int
    mode: int
    changed: float

    def blocks(self) -> Iterator[bytes]:
        """Yields its bytes. Raises CommandError where the file has become shorter."""
        offset = 0
        while offset < self.size:
            block = os.pread(self.fd, min(READ_BYTES, self.size - offset), offset)
            if not block:
                raise CommandError(f"{self.name} was cut while it was copied: make the backup again")
            offset += len(block)
            yield block


@contextmanager
def snapshot(folders: Mapping[str, Path]) -> Iterator[list[OpenFile]]:
    """Yields the files of these folders, named as in `logs/labels.jsonl`. Raises CommandError."""
    _allow_many_files()
    with ExitStack() as opened:
        with _nothing_changes(folders[ADAPTERS], folders[LOGS]):
            files = [
                file
                for name in (KEYS, ADAPTERS, LOGS)
                if name in folders
                for file in _open(name, folders[name], opened)
            ]
        yield files


def _open(name: str, folder: Path, opened: ExitStack) -> Iterator[OpenFile]:
    for root, inner, files in os.walk(folder):
        inner.sort()
        for file in sorted(files):
            path = Path(root, file)
            if file.endswith(LEFT_OUT) or not path.is_file() or path.is_symlink():
                continue
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            except FileNotFoundError:  # a training removes an old checkpoint of its own
                continue
            opened.callback(os.close, fd)
            status = os.fstat(fd)
            size = _end_of_whole_lines(fd, status.st_size) if file.endswith(".jsonl") else status.st_size
            yield OpenFile(f"{name}/{path.relative_to(folder)}", fd, size, status.st_mode & 0o777, status.st_mtime)


def _end_of_whole_lines(fd: int, size: int) -> int:
    """Return where the last whole line ends: a line that is being written is none of the backup's."""
    end = size
    while end > 0:
        start = max(0, end - READ_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


@contextmanager
def _nothing_changes(adapters: Path, logs: Path) -> Iterator[None]:
    """Holds both locks, and never waits for the second with the first in hand: another may hold the second."""
    locks = FolderLock(adapters), FolderLock(logs, CHANGES)
    deadline = time.monotonic() + BOTH_LOCKS_WITHIN_S
    try:
        while not all(lock.try_acquire() for lock in locks):
            for lock in locks:
                lock.release()
            if time.monotonic() > deadline:
                holders = " and ".join(f"{lock.path} ({lock.holder()})" for lock in locks)
                raise CommandError(f"no backup was made: somebody held {holders} for {BOTH_LOCKS_WITHIN_S:.0f} s")
            time.sleep(0.02)
        yield
    finally:
        for lock in locks:
            lock.release()


def _allow_many_files() -> None:
    """All files are open at once: as many as the hard limit allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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
