"""Images that programs are run in: each unpacked once, by `ratchet programs install`, into a folder named by its sum.

Nothing is fetched here: an image of a registry is pulled by skopeo, which checks its sum. Where isolation is a pod's or
gVisor's, an image is the same folder for bubblewrap inside, and no container of the cluster's.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from ratchet.files.atomic_file import replace_file
from ratchet.programs.images.archive import BadImage, ImageConfig, open_image
from ratchet.programs.images.installing import SHOWN_CHARS, Image, NotInstalled, Say, installing
from ratchet.programs.images.layers import has_program, lay, make_folder
from ratchet.service.errors import SettingsError
from workbench.sandbox.bubblewrap import OURS

ROOT, READY = "root", "image.json"
"""The root that a program sees, and what its image says; the second is there last."""
HIDDEN = ".images"
"""No program is called so: environments lie in the same folder."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    root: Path
    config: ImageConfig


def sum_of(image: Image) -> str | None:
    """Return the sum of an image, also of its unpacked folder; None for a folder that somebody made."""
    if image.folder is not None and image.folder.parent.parent.name == HIDDEN:
        return image.folder.parent.name
    return image.sum


def own_folder(image: Image) -> Path | None:
    """Return a folder that somebody made and may change; None for ours."""
    return image.folder if sum_of(image) is None else None


class Images:
    def __init__(self, folder: Path) -> None:
        """`folder`: of the environments."""
        self._folder = folder.absolute()

    def find(self, image: Image) -> Unpacked | None:
        if image.folder is not None:
            return Unpacked(image.folder, ImageConfig()) if image.folder.is_dir() else None
        place = self._place(image)
        try:
            said = json.loads((place / READY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return Unpacked(place / ROOT, ImageConfig(tuple(said["command"]), said["environment"], said["directory"]))

    def require(self, image: Image, typed: str) -> Unpacked:
        """Raises SettingsError, with what is to be `typed`, where it is not unpacked."""
        if (found := self.find(image)) is not None:
            return found
        if image.folder is not None:
            raise SettingsError(f"{image.folder} is no folder here")
        raise SettingsError(f"the {image.named} is not unpacked in {self._folder}; type: {typed}")

    def install(self, image: Image, say: Say) -> Path:
        """The folder, unpacked unless it is there. Raises NotInstalled. Blocks for minutes."""
        if (found := self.find(image)) is not None:
            return found.root
        if image.folder is not None:
            raise NotInstalled(f"{image.folder} is no folder here")
        place = self._place(image)
        with installing(self._folder):
            making = place.with_name(f"{place.name}.partial")
            shutil.rmtree(making, ignore_errors=True)
            try:
                (making / ROOT).mkdir(parents=True)
                self._make(image, making, say)
                os.sync()
                making.rename(place)
            except BadImage as error:
                raise NotInstalled(f"the {image.named} can't be used: {error}") from error
            except OSError as error:
                raise NotInstalled(f"the {image.named} can't be unpacked: {error}") from error
            finally:
                shutil.rmtree(making, ignore_errors=True)
        return place / ROOT

    def _place(self, image: Image) -> Path:
        assert image.sum is not None
        return self._folder / HIDDEN / image.sum

    def _make(self, image: Image, making: Path, say: Say) -> None:
        root = making / ROOT
        for folder in (making.parent, making, root):
            folder.chmod(0o755)
        if image.archive is not None:
            archive = image.archive
            _check(archive, image.sha256)
        else:
            archive = making / "pulled.tar"
            say(f"pulling {image.pull}")
            _pull(str(image.pull), archive)
        say(f"unpacking {image.named}")
        with open_image(archive) as read:
            lay(read, root, int(image.gigabytes * 1e9))
            config = _fitting(read.config, root)
        if image.pull:
            archive.unlink()
        replace_file(making / READY, json.dumps(asdict(config)).encode(), mode=0o644)


def _check(archive: Path, wanted: str | None) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise BadImage(f"its sum is {found}, not {wanted}")


def _fitting(config: ImageConfig, root: Path) -> ImageConfig:
    """Fit the folder and the configuration to a run in a sandbox. Raises BadImage."""
    if not has_program(root, "bin/sh"):
        raise BadImage("it has no /bin/sh, by which a sandbox sets its limits: add one, such as busybox's")
    etc = root / "etc"
    if etc.is_dir() and not etc.is_symlink():
        for name in ("passwd", "group"):  # a place for the sandbox's own
            if not os.path.lexists(etc / name):
                (etc / name).touch(0o644)
    directory = config.directory
    if directory is not None:
        if PurePosixPath(directory).parts[1] in OURS:
            directory = None
        else:
            make_folder(root, directory)
    return ImageConfig(config.command, dict(config.environment), directory)


def _pull(reference: str, archive: Path) -> None:
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        raise NotInstalled(
            f"{reference} is pulled by skopeo, which is not installed here: apt-get install skopeo; or `docker save` "
            "it, and name the archive by its sum"
        )
    command = [skopeo, "copy", "--quiet", "--override-os", "linux", reference, f"oci-archive:{archive}"]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if ran.returncode:
        raise NotInstalled(f"{reference} can't be pulled: {(ran.stderr or ran.stdout).strip()[-SHOWN_CHARS:]}")
