"""The files of an SQLite database: its own, and those SQLite keeps beside it while it is in use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

SUFFIXES = ("", "-wal", "-shm")


def unlink_database(path: Path) -> None:
    """Harmless where there is none."""
    for suffix in SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def rename_database(path: Path, to: Path) -> None:
    """Harmless where there is none."""
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{to}{suffix}")
