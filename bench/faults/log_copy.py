"""A copy of a fleet's logs, taken from outside while retention removes their oldest segments; complete at the end."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

from tests.acceptance.ledger import LOGS

EVERY_S = 0.3


class LogCopy:
    """A segment is removed only once it is compressed and another was sealed behind it: there is time to copy it."""

    def __init__(self, logs: Path, folder: Path) -> None:
        self._logs = logs
        self.folder = folder
        folder.mkdir()

    async def run(self) -> None:
        """Copy sealed segments until cancelled."""
        while True:
            await asyncio.to_thread(self.take, "-*.jsonl.zst")
            await asyncio.sleep(EVERY_S)

    def finish(self) -> None:
        """Copy the rest, once nobody writes any more."""
        self.take("-*.jsonl*")
        self.take(".jsonl")

    def take(self, pattern: str) -> None:
        for name in LOGS:
            for path in self._logs.glob(name + pattern):
                if path.suffix in (".zst", ".jsonl") and not (self.folder / path.name).exists():
                    self._take(path)

    def _take(self, path: Path) -> None:
        temporary = self.folder / "copying"
        with suppress(FileNotFoundError):
            shutil.copyfile(path, temporary)
            temporary.rename(self.folder / path.name)
