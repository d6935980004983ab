"""`dismissed_letters.jsonl`: every dead letter a person put away, whole, with who did it, when and why; and who
restored one since. Blocks.

Nothing is ever removed from it by us. From 256 MiB on it takes no more letters: then one stays in its queue.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ratchet.bus.amqp.frames import read_properties, write_properties
from ratchet.bus.dead_letters.letter import DeadLetter, plain, text_or_base64
from ratchet.bus.dead_letters.queue import Held
from ratchet.files.append_file import explain
from ratchet.files.atomic_file import append_line
from ratchet.service.errors import DiskFull

FILE = "dismissed_letters.jsonl"
"""A file in the logs folder."""
MOST_BYTES = 256 * 1024 * 1024


class _Letter(msgspec.Struct):
    id: str
    raw_properties: str


class _Line(msgspec.Struct):
    """A line about a letter that was put away, or about the id of one that was restored."""

    letter: _Letter | None = None
    restored: str | None = None


_decoder = msgspec.json.Decoder(_Line)


class Dismissals:
    """Several processes may append to one file. Raises DiskFull, JournalError throughout."""

    def __init__(self, logs_dir: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = logs_dir.absolute() / FILE
        self._most_bytes = most_bytes

    def keep(self, held: Held, who: str, reason: str) -> None:
        """Returns once the letter is on disk. Raises DiskFull also where the file has reached its bound."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain(error, self.path) from error
        if not append_line(self.path, _line(who, reason, letter=_as_record(held)), self._most_bytes):
            raise DiskFull(
                f"{self.path} holds {self.path.stat().st_size:,} of at most {self._most_bytes:,} bytes: move it "
                f"elsewhere, and a new one begins. The letter stays"
            )

    def note_restored(self, letter_id: str, who: str, reason: str) -> None:
        """Returns once it is on disk, in a file that has reached its bound, too: the letter is in its queue already."""
        append_line(self.path, _line(who, reason, restored=letter_id), sys.maxsize)

    def places(self) -> dict[str, int | None]:
        """Map each dismissed id to the byte at which its newest line begins; None: restored since.

        A line torn by a crash is passed over: its letter stayed in its queue.
        """
        found: dict[str, int | None] = {}
        place = 0
        try:
            with self.path.open("rb") as file:
                for line in file:
                    _note(line, place, found)
                    place += len(line)
        except FileNotFoundError:
            return found
        except OSError as error:
            raise explain(error, self.path, "read") from error
        return found

    def read_letter(self, place: int) -> Held:
        """The letter of that line, with its properties as they came."""
        try:
            with self.path.open("rb") as file:
                file.seek(place)
                letter = json.loads(file.readline())["letter"]
        except OSError as error:
            raise explain(error, self.path, "read") from error
        body = b64decode(letter["body"]) if letter["encoding"] == "base64" else letter["body"].encode()
        properties = read_properties(b64decode(letter["raw_properties"]), 0)
        return Held(DeadLetter(**{field.name: letter[field.name] for field in fields(DeadLetter)}), 0, properties, body)


def _note(line: bytes, place: int, found: dict[str, int | None]) -> None:
    try:
        read = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if read.letter is not None:
        found[read.letter.id] = place
    elif read.restored is not None:
        found[read.restored] = None


def _as_record(held: Held) -> dict[str, Any]:
    """`properties` are those of AMQP, the headers among them, for people; `raw_properties` are the same as they came.
    The letter's `reason` is why it failed."""
    body, encoding = text_or_base64(held.body)
    properties = {field.name: getattr(held.properties, field.name) for field in fields(held.properties)}
    given = {name: value for name, value in properties.items() if value is not None}
    raw = b64encode(write_properties(held.properties)).decode()
    whole = {"properties": plain(given), "raw_properties": raw, "body": body, "encoding": encoding}
    return held.letter.as_dict() | whole


def _line(who: str, reason: str, **what: Any) -> bytes:
    entry = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "who": who, "reason": reason, **what}
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
