"""The files of an SQLite database: its own, and those SQLite keeps beside it while it is in use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

SUFFIXES = ("", "-wal", "-shm")


def unlink_database(path: Path) -> None:
    """Harmless where there is none."""
    for suffix in SUFFIXES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def replace_database(path: Path, to: Path) -> None:
    """Put a closed database in the place of another, of which nothing is kept. Raises FileNotFoundError."""
    for suffix in SUFFIXES[1:]:  # before: else what is new would be taken for what that log goes on from
        Path(f"{to}{suffix}").unlink(missing_ok=True)
    path.rename(to)
    for suffix in SUFFIXES[1:]:
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{to}{suffix}")
