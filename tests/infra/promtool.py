"""prometheus and promtool: those on the PATH, else the Debian package's, unpacked into .ratchet/tools.

Nothing is installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".ratchet" / "tools"
SENTENCE = "{} is missing and can't be fetched; type: sudo apt-get update && sudo apt-get install -y prometheus"


@cache
def program(name: str) -> str:
    """The path of `prometheus` or `promtool`. Fails the test, rather than skipping it, where there is none."""
    unpacked = TOOLS / "usr" / "bin" / name
    if found := shutil.which(name):
        return found
    with _alone():
        if not unpacked.exists():
            _fetch(SENTENCE.format(name))
    assert unpacked.exists(), SENTENCE.format(name)
    return str(unpacked)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one of several test processes fetch, while the others wait."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(sentence: str) -> None:
    assert shutil.which("apt-get") and shutil.which("dpkg-deb"), sentence
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, check=False)
        packages = list(Path(folder).glob("*.deb"))
        assert packages, sentence
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(TOOLS)], check=True)


def run_promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool on one core, with more memory for less garbage collection, which takes half of the CPU else."""
    return subprocess.run(
        [program("promtool"), *arguments],
        cwd=folder,
        env=os.environ | {"GOGC": "400", "GOMAXPROCS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
