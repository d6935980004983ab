"""Finds an adapter's folder, reads its files, identifies its content, and gives the name it is served under.

Every writer of the adapters folder may have written these files: each is opened without following a link, must be a
plain file, and is read up to a bound. Writes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from ratchet.adapters.limits import LARGEST_FILE, LARGEST_JSON, MOST_FILES
from ratchet.files.append_file import disk_errors
from ratchet.service.errors import AdapterError

VERSION = re.compile(r"v[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")
CONFIG_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"
CONTENT_FILES = (CONFIG_NAME, WEIGHTS_NAME)

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for files; without O_NONBLOCK a pipe in place of one would never open."""


def adapter_folder(adapters_dir: Path, agent_id: str, version: str) -> Path:
    """`<adapters>/<agent>/<version>`. Raises AdapterError for a version that is not one, or has no adapter in it."""
    if not VERSION.fullmatch(version):
        raise AdapterError(f"{version[:100]!r} is no adapter version: it should look like v1.0.1")
    folder = adapters_dir / agent_id / version
    for name in CONTENT_FILES:
        if not (folder / name).is_file():
            raise AdapterError(
                f"adapter {version} of agent {agent_id} has no {folder / name}: restore it, or roll back"
            )
    return folder


@contextmanager
def open_file(folder: Path, name: str, at_most: int = LARGEST_FILE) -> Iterator[BufferedReader]:
    """A plain file of an adapter's folder. Neither the agent's folder, nor the version's, nor anything in it may be a
    link; the folder of all adapters may, for it is the operator's.

    Raises OSError, StorageUnavailable where the disk can't be used now, and AdapterError for a link, for what is no
    plain file, or larger than `at_most` bytes.
    """
    *inner, last = name.split("/")
    with disk_errors(folder / name):
        with _descriptor(folder, *inner) as parent, _links_refused(folder / name):
            descriptor = os.open(last, FILE_FLAGS, dir_fd=parent)
        try:
            _check_plain(os.fstat(descriptor), folder / name, at_most)
        except BaseException:
            os.close(descriptor)
            raise
        with os.fdopen(descriptor, "rb") as file:
            yield file


def _check_plain(status: os.stat_result, path: Path, at_most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise AdapterError(f"{path} is no plain file: restore it, or roll back")
    if status.st_size > at_most:
        raise AdapterError(f"{path} has {status.st_size:,} bytes, and may have {at_most:,}: publish less")


def read_file(folder: Path, name: str, at_most: int = LARGEST_JSON) -> bytes:
    """Return the whole file. Raises as `open_file`."""
    with open_file(folder, name, at_most) as file:
        return file.read(at_most)


def parsed_json(content: bytes) -> Any:
    """Parse as strictly as the format says: no name twice in an object, no NaN.

    Raises ValueError, and RecursionError if nested.
    """
    return json.loads(content, object_pairs_hook=_object, parse_constant=_no_number)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("it has a name twice")
    return fields


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def file_names(folder: Path) -> set[str]:
    """Everything in it that is no folder, by its path inside. Raises as `open_file`."""
    found: set[str] = set()
    folders: list[tuple[str, ...]] = [()]
    entries_seen = 0
    for inner in folders:  # which grows
        with _descriptor(folder, *inner) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                entries_seen += 1
                if entries_seen > MOST_FILES:
                    raise AdapterError(f"{folder} holds more than {MOST_FILES} files: publish it without the others")
                path = (*inner, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    found.add("/".join(path))
    return found


@contextmanager
def _descriptor(folder: Path, *inner: str) -> Iterator[int]:
    """Open the version's folder, or one in it, each from the one before. Raises as `open_file`."""
    whole = folder.absolute()
    with disk_errors(folder):
        descriptor = os.open(whole.parent.parent, FOLDER_FLAGS)
        try:
            for part in (whole.parent.name, whole.name, *inner):
                with _links_refused(folder.joinpath(*inner)):
                    outer, descriptor = descriptor, os.open(part, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(outer)
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def _links_refused(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise AdapterError(f"{path} is a link, or reached through one: copy the adapter itself into place") from None


def adapter_sha256(folder: Path) -> str:
    """Hash the adapter's configuration and weights: all that makes it answer as it does, so without the adapter card.

    Raises as `open_file`.
    """
    total = hashlib.sha256()
    for name in CONTENT_FILES:
        with open_file(folder, name) as file:
            total.update(name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def served_name(agent_id: str, version: str, sha256: str) -> str:
    """A name that never means other weights."""
    return f"{agent_id}-{version}-{sha256[:8]}"
