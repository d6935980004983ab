"""What programs require: a virtual environment for each, made by `ratchet programs install`, seen read-only inside.

It is made with the Python that a sandbox has, the one below /usr: another could not be run there. Versions that a
program does not pin are those of the day it was installed; the same requirements are not installed twice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.files.atomic_file import replace_file
from ratchet.files.folder_lock import FolderLock
from ratchet.sandbox.bubblewrap import PATH
from ratchet.service.errors import RatchetError, SettingsError

READY = "ready.json"
"""What was installed, written last."""
MASK = 0o022
"""Each run of a runner that root starts has a user of its own, who has to read it."""
SHOWN_CHARS = 600

Say = Callable[[str], None]


class NotInstalled(RatchetError):
    """What a program requires can't be had; the sentence says why."""


class Environments:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def ready(self, name: str, requirements: Sequence[str]) -> bool:
        """Whether just these were installed."""
        try:
            installed: object = json.loads((self._folder / name / READY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return installed == list(requirements)

    def require(self, name: str, requirements: Sequence[str], typed: str) -> Path:
        """The folder. Raises SettingsError, with what is to be `typed`, where it is not installed."""
        if not self.ready(name, requirements):
            raise SettingsError(f"{', '.join(requirements)} not installed in {self._folder / name}; type: {typed}")
        return self._folder / name

    def install(self, name: str, requirements: Sequence[str], say: Say) -> Path:
        """The folder, made anew unless it is there. Raises NotInstalled. Blocks for minutes."""
        place = self._folder / name
        if self.ready(name, requirements):
            return place
        python = shutil.which("python3", path=PATH)
        if python is None:
            raise NotInstalled(f"no python3 in {PATH}: a sandbox sees no other")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._require_passable()
        lock = FolderLock(self._folder)
        if not lock.try_acquire():
            raise NotInstalled(f"something is installed in {self._folder} right now ({lock.holder()}): try again then")
        try:
            say(f"{name}: installing {', '.join(requirements)}")
            self._make(place, python, requirements)
        finally:
            lock.release()
        return place

    @staticmethod
    def _make(place: Path, python: str, requirements: Sequence[str]) -> None:
        shutil.rmtree(place, ignore_errors=True)
        _run([python, "-m", "venv", str(place)], "apt-get install python3-venv, where it lacks ensurepip")
        pip = [str(place / "bin/python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        _run([*pip, *requirements], f"the Python of sandboxes here is {python}")
        replace_file(place / READY, json.dumps(list(requirements)).encode(), mode=0o644)

    def _require_passable(self) -> None:
        if os.geteuid() != 0:
            return
        closed = next((one for one in (self._folder, *self._folder.parents) if not one.stat().st_mode & 0o001), None)
        if closed is not None:
            raise NotInstalled(
                f"{closed} may be passed by root alone, and each run has a user of its own: set "
                "RATCHET_PROGRAM_ENVIRONMENTS to a folder that every user may pass, such as /var/lib/ratchet/programs"
            )


def _run(command: Sequence[str], hint: str) -> None:
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, umask=MASK
    )
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()[-SHOWN_CHARS:]
        raise NotInstalled(f"{' '.join(command[:4])} … failed ({hint}): {said}")
