"""Finished rollouts on disk, until their task is answered: a Work that comes again runs only what is missing.

A folder for each Work, a file for each of its samples, fsynced before anything else is done. Beside it lie the steps of
rollouts that have not ended (ratchet/rollouts/kept_steps.py), and how those stand that wait for a person. Whoever
shares the folder shares them. All of it is bounded, and what nobody came back for is removed after days. Blocks; give
it a thread.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from ratchet.files.append_file import explaining
from ratchet.files.atomic_file import replace_file
from ratchet.files.folder_lock import FolderLock
from ratchet.rollouts.kept_steps import KeptSteps
from ratchet.service.errors import DiskFull
from schemas.messages.response import Sample
from services.runner import metrics

FOLDER = "rollouts"
KEPT_DAYS = 7.0
STANDING = ".standing.json"
ANSWERED = "answered"
MOST_ANSWERED = 10_000
"""Work that is known to be answered, at least."""
NAMED = 32
"""Characters of a sum that name a folder."""


class KeptRollouts:
    """Raises JournalError, DiskFull and other StorageUnavailable throughout."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder / FOLDER
        self._most_bytes = most_bytes
        self._unsaved: dict[tuple[str, int], Sample] = {}
        """Finished, and the disk did not take them yet."""

    def of(self, key: str) -> dict[int, Sample]:
        """Return them by their numbers, once those that the disk did not take before are on it, too.

        A file that can't be read is none: that sample is run again.
        """
        found = {number: sample for (of, number), sample in list(self._unsaved.items()) if of == key}
        self.put(key, found)
        with explaining(self._place(key)):
            for path in sorted(self._place(key).glob("*.json")):
                if path.stem.isdecimal() and (sample := _read(path)) is not None:
                    found[int(path.stem)] = sample
        return found

    def put(self, key: str, samples: Mapping[int, Sample]) -> None:
        """Returns when they are on disk. Raises DiskFull also where the folder has reached its bound.

        Those that can't be saved are kept in memory, and saved next time.
        """
        place = self._place(key)
        self._unsaved |= {(key, number): sample for number, sample in samples.items()}
        with explaining(place):
            place.mkdir(parents=True, exist_ok=True)
            for number, sample in samples.items():
                content = sample.model_dump_json(exclude_none=True).encode()
                held = self.bytes + len(content)
                if held > self._most_bytes:
                    raise DiskFull(
                        f"{self._folder} holds as much as it may: give it more room (RATCHET_RUNNER_KEEP_GB)"
                    )
                replace_file(place / f"{number}.json", content, mode=0o600)
                del self._unsaved[key, number]
                self._show(held)

    def has_begun(self, key: str) -> bool:
        """Tell whether a rollout of this Work was begun, here or by a runner that shares the folder."""
        return any(self._place(key).glob("[0-9]*"))

    def lock(self, key: str) -> FolderLock:
        """Return a lock on this Work among the runners that share the folder. It goes with `remove`."""
        return FolderLock(self._place(key))

    def steps(self, key: str, number: int) -> KeptSteps:
        """Open the steps of a rollout. Raises JournalError."""
        place = self._place(key)
        with explaining(place):
            return KeptSteps(place / f"{number}.steps.jsonl", f"{key}/{number}")

    def put_standing(self, key: str, number: int, sample: Sample) -> None:
        """Keep a rollout as it stands while a person is waited for. Returns when it is on disk."""
        with explaining(self._place(key)):
            content = sample.model_dump_json(exclude_none=True).encode()
            replace_file(self._place(key) / f"{number}{STANDING}", content, mode=0o600)

    def standing(self, key: str, number: int) -> Sample | None:
        """Return it as it stands; None where that can't be read."""
        return _read(self._place(key) / f"{number}{STANDING}")

    def remove_standing(self, key: str, number: int) -> None:
        """It goes on, and stands otherwise when it asks again."""
        with explaining(self._place(key)):
            (self._place(key) / f"{number}{STANDING}").unlink(missing_ok=True)

    def note_answered(self, key: str) -> None:
        """The Response is confirmed: this Work is not run again, however often it comes. Raises nothing."""
        file = self._folder.parent / ANSWERED
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as answered:
                answered.write(f"{self._place(key).name}\n".encode())
                is_long = answered.tell() > 2 * MOST_ANSWERED * (NAMED + 1)
            if is_long:
                replace_file(file, file.read_bytes()[-MOST_ANSWERED * (NAMED + 1) :], mode=0o600)

    def was_answered(self, key: str) -> bool:
        """Tell whether this Work is known to be answered, by whichever runner that shares the folder."""
        try:
            return self._place(key).name.encode() in (self._folder.parent / ANSWERED).read_bytes()
        except OSError:
            return False

    def remove(self, key: str) -> None:
        """Its task is answered. Raises nothing: what stays is swept later."""
        for unsaved in [one for one in list(self._unsaved) if one[0] == key]:
            del self._unsaved[unsaved]
        shutil.rmtree(self._place(key), ignore_errors=True)
        self._show(self.bytes)

    def sweep(self, now: float | None = None) -> int:
        """Remove what nobody came back for. Returns how many."""
        before = (time.time() if now is None else now) - KEPT_DAYS * 86_400
        removed = 0
        for place in self._folder.glob("*") if self._folder.is_dir() else ():
            with suppress(OSError):
                if place.stat().st_mtime < before:
                    shutil.rmtree(place)
                    removed += 1
        self._show(self.bytes)
        return removed

    def _show(self, held: int) -> None:
        metrics.kept_share.set(held / self._most_bytes)

    @property
    def bytes(self) -> int:
        """Return it as far as it can be told while others put and remove."""
        total = 0
        for place in self._folder.iterdir() if self._folder.is_dir() else ():
            with suppress(OSError):
                for path in place.iterdir():
                    with suppress(OSError):
                        total += path.stat().st_size
        return total

    def _place(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()[:NAMED]


def _read(path: Path) -> Sample | None:
    try:
        return Sample.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
