"""Requirements of programs: a virtual environment for each, made by `ratchet programs install`, seen read-only inside.

It is made with the Python that a sandbox has, the one below /usr: another could not be run there. Versions that a
program does not pin are those of the day it was installed; the same requirements are not installed twice. Others are
installed beside what is there, which is replaced as a whole: programs that run go on with what they see, and the next
ones begin with the new. What was replaced stays on disk until the next time. Its commands run
wherever it is seen: it is made in one folder, moved to another, and bound into sandboxes at a third.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ratchet.files.atomic_file import replace_file
from ratchet.programs.images.installing import SHOWN_CHARS, NotInstalled, Say, installing
from ratchet.programs.images.store import Images
from ratchet.service.errors import SettingsError
from workbench.sandbox.bubblewrap import PATH

READY = "ready.json"
"""The list of what was installed, written last."""
MASK = 0o022
"""Each run of a runner that root starts has a user of its own, who has to read it."""
BESIDE_ITSELF = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
"""
"""The beginning of a Python command that runs with the interpreter of its own folder. To Python it is a string."""


class Environments:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.images = Images(folder)

    def ready(self, name: str, requirements: Sequence[str]) -> bool:
        """Tell whether just these were installed."""
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
        with installing(self._folder):
            say(f"{name}: installing {', '.join(requirements)}")
            self._make(place, python, requirements)
        return place

    @staticmethod
    def _make(place: Path, python: str, requirements: Sequence[str]) -> None:
        making = place.with_name(f".{place.name}.partial")
        shutil.rmtree(making, ignore_errors=True)
        _run([python, "-m", "venv", str(making)], "apt-get install python3-venv, where it lacks ensurepip")
        pip = [str(making / "bin/python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        _run([*pip, *requirements], f"the Python of sandboxes here is {python}")
        make_movable(making, place)
        replace_file(making / READY, json.dumps(list(requirements)).encode(), mode=0o644)
        put_in_place(making, place)


def make_movable(making: Path, place: Path) -> None:
    """Lets the commands of a virtual environment run wherever it lies; what else names its folder names `place`."""
    interpreter = b'"?%b/python[0-9.]*"?' % re.escape(bytes(making / "bin"))
    begins = re.compile(rb"#!%b\n|#!/bin/sh\n'''exec' %b \"\$0\" \"\$@\"\n' '''\n" % (interpreter, interpreter))
    for file in (making / "bin").iterdir():
        if file.is_file() and not file.is_symlink() and bytes(making) in (said := file.read_bytes()):
            if found := begins.match(said):
                said = BESIDE_ITSELF + said[found.end() :]
            file.write_bytes(said.replace(bytes(making), bytes(place)))


def put_in_place(making: Path, place: Path) -> None:
    """Moves one folder to where another is or is not. Raises NotInstalled."""
    replaced = place.with_name(f".{place.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    try:
        with suppress(FileNotFoundError):
            place.rename(replaced)
        making.rename(place)
    except OSError as error:
        raise NotInstalled(f"{making} can't be moved to {place}: {error}") from error


def _run(command: Sequence[str], hint: str) -> None:
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, umask=MASK
    )
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()[-SHOWN_CHARS:]
        raise NotInstalled(f"{' '.join(command[:4])} … failed ({hint}): {said}")
