"""The frame of every installation for programs: one at a time in a folder, which every run may pass."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ratchet.files.folder_lock import FolderLock
from ratchet.service.errors import RatchetError

PULLED = re.compile(r"docker://[^\s@]+@sha256:[0-9a-f]{64}")


class Image(BaseModel):
    """A root file system in place of the machine's /usr, read-only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path | None = Field(None, description="One that is unpacked already. Relative to the file.")
    archive: Path | None = Field(
        None, description="What `docker save` wrote, or a tar of an OCI layout. Relative to the file."
    )
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="Of the archive.")
    pull: str | None = Field(
        None,
        pattern=rf"^{PULLED.pattern}$",
        description="docker://REGISTRY/NAME@sha256:…: fetched by skopeo, where that is installed.",
    )
    gigabytes: float = Field(8.0, gt=0, description="Most that all its layers may take, unpacked.")

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if sum(one is not None for one in (self.folder, self.archive, self.pull)) != 1:
            raise ValueError("an image is either a folder, or an archive, or pulled")
        if (self.archive is None) != (self.sha256 is None):
            raise ValueError("an archive, and nothing else, has a sha256: sha256sum says it")
        return self

    @property
    def sum(self) -> str | None:
        """Sum by which it is known; a folder has none."""
        return self.sha256 or (self.pull.rpartition(":")[2] if self.pull else None)

    @property
    def named(self) -> str:
        """Its name for people."""
        return f"image {self.pull or self.archive or self.folder}"

    def relative_to(self, folder: Path) -> Self:
        places = {"folder": self.folder, "archive": self.archive}
        return self.model_copy(update={name: (folder / at).absolute() for name, at in places.items() if at})


SHOWN_CHARS = 600

Say = Callable[[str], None]


class NotInstalled(RatchetError):
    """A requirement of a program can't be had; the sentence says why."""


class AnotherInstalls(NotInstalled):
    """Somebody else installs in the folder just now."""


@contextmanager
def installing(folder: Path) -> Iterator[None]:
    """Raises NotInstalled where somebody else installs there, or runs could not get at it."""
    folder.mkdir(parents=True, exist_ok=True)
    _require_passable(folder)
    lock = FolderLock(folder)
    if not lock.try_acquire():
        raise AnotherInstalls(f"something is installed in {folder} right now ({lock.holder()}): try again then")
    try:
        yield
    finally:
        lock.release()


def _require_passable(folder: Path) -> None:
    """Each run of a runner that root starts has a user of its own."""
    if os.geteuid() != 0:
        return
    closed = next((one for one in (folder, *folder.parents) if not one.stat().st_mode & 0o001), None)
    if closed is not None:
        raise NotInstalled(
            f"{closed} may be passed by root alone, and each run has a user of its own: set "
            "RATCHET_PROGRAM_ENVIRONMENTS to a folder that every user may pass, such as /var/lib/ratchet/programs"
        )
