"""`dismissed_letters.jsonl`: every dead letter a person put away, whole, with who did it, when and why. Blocks.

Nothing is ever removed from it by us. From 256 MiB on it takes no more: then a letter stays in its queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet.bus.dead_letters.letter import plain, text_or_base64
from ratchet.bus.dead_letters.queue import Held
from ratchet.files.append_file import explain
from ratchet.files.line_file import append_line
from ratchet.service.errors import DiskFull

FILE = "dismissed_letters.jsonl"
"""In the logs folder."""
MOST_BYTES = 256 * 1024 * 1024


class _Letter(msgspec.Struct):
    id: str


class _Line(msgspec.Struct):
    letter: _Letter


_decoder = msgspec.json.Decoder(_Line)


class Dismissals:
    """Several processes may append to one file. Raises DiskFull, JournalError throughout."""

    def __init__(self, logs_dir: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = logs_dir.absolute() / FILE
        self._most_bytes = most_bytes

    def keep(self, held: Held, who: str, reason: str) -> None:
        """Returns once the letter is on disk. Raises DiskFull also where the file has reached its bound."""
        line = _line(held, who, reason)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explain(error, self.path) from error
        if not append_line(self.path, line, self._most_bytes):
            raise DiskFull(
                f"{self.path} holds {self.path.stat().st_size:,} of at most {self._most_bytes:,} bytes: move it "
                f"elsewhere, and a new one begins. The letter stays"
            )

    def ids(self) -> Iterator[str]:
        """Of all that were dismissed, some more than once. A line torn by a crash is passed over: its letter stayed."""
        try:
            with self.path.open("rb") as file:
                for line in file:
                    try:
                        yield _decoder.decode(line).letter.id
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        continue
        except FileNotFoundError:
            return
        except OSError as error:
            raise explain(error, self.path, "read") from error


def _line(held: Held, who: str, reason: str) -> bytes:
    """`properties` are those of AMQP, the headers among them; `reason` is why it was dismissed, the letter's why it
    failed."""
    body, encoding = text_or_base64(held.body)
    properties = {field.name: getattr(held.properties, field.name) for field in fields(held.properties)}
    given = {name: value for name, value in properties.items() if value is not None}
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": who,
        "reason": reason,
        "letter": held.letter.as_dict() | {"properties": plain(given), "body": body, "encoding": encoding},
    }
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
