"""A stream of bytes in encrypted chunks (AES-256-GCM), so that an archive of any size needs little memory.

The nonce of a chunk is a random prefix of the file, the number of the chunk, and whether it is the last (the STREAM
construction of Hoang, Reyhanitabar, Rogaway and Vizár, 2015). A chunk that is changed, moved, repeated or cut off at
the end is an error.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from services.cli.terminal import CommandError, UsageError

MAGIC = b"ratchet-backup-aes256gcm-1\n"
CHUNK = 1 << 20
TAG = 16
PREFIX = 7


def read_key(file: Path) -> bytes:
    """The 32 bytes of a key file, which holds them in base64. Raises UsageError."""
    try:
        key = base64.b64decode(file.read_bytes().strip(), validate=True)
    except OSError as error:
        raise UsageError(f"the key {file} can't be read: {error.strerror}") from None
    except binascii.Error:
        key = b""
    if len(key) != 32:
        raise UsageError(
            f"{file} holds no key: make one with `openssl rand -base64 32 > {file}`, and keep it elsewhere"
        )
    return key


class Encrypting(RawIOBase):
    """Writes what it is given to `file`, encrypted; `close` writes the last chunk and leaves `file` open."""

    def __init__(self, file: BinaryIO, key: bytes) -> None:
        self._file = file
        self._cipher = AESGCM(key)
        self._prefix = secrets.token_bytes(PREFIX)
        self._count = 0
        self._rest = bytearray()
        file.write(MAGIC + self._prefix)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._rest += data
        while len(self._rest) > CHUNK:  # never all: the last chunk says that it is the last
            self._put(bytes(self._rest[:CHUNK]), last=False)
            del self._rest[:CHUNK]
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._put(bytes(self._rest), last=True)
        super().close()

    def _put(self, chunk: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._prefix, self._count, last), chunk, MAGIC))
        self._count += 1


class Decrypting(RawIOBase):
    """Reads what `Encrypting` wrote, after MAGIC. Raises CommandError for another key or a file that was changed."""

    def __init__(self, file: BinaryIO, key: bytes) -> None:
        self._file = file
        self._cipher = AESGCM(key)
        self._prefix = file.read(PREFIX)
        self._count = 0
        self._next = file.read(CHUNK + TAG)
        self._plain = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._plain and self._next:
            chunk, self._next = self._next, self._file.read(CHUNK + TAG)
            try:
                self._plain = self._cipher.decrypt(_nonce(self._prefix, self._count, not self._next), chunk, MAGIC)
            except InvalidTag:
                raise CommandError(
                    "the backup can't be decrypted: the key is another one, or the file was changed"
                ) from None
            self._count += 1
        count = min(len(buffer), len(self._plain))
        buffer[:count], self._plain = self._plain[:count], self._plain[count:]
        return count


def _nonce(prefix: bytes, count: int, last: bool) -> bytes:
    return prefix + count.to_bytes(4, "big") + bytes([last])


def open_plain(file: BinaryIO, key: bytes | None) -> BinaryIO | Decrypting:
    """Returns the stream of a backup's bytes, encrypted or not. Raises UsageError where a key is missing."""
    if file.read(len(MAGIC)) != MAGIC:
        file.seek(0, os.SEEK_SET)
        return file
    if key is None:
        raise UsageError("the backup is encrypted: name its key with --key-file")
    return Decrypting(file, key)
