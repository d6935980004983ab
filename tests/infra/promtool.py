"""promtool: the one on the PATH, else the Debian package's, unpacked into .ratchet/tools: nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".ratchet" / "tools"
SENTENCE = "promtool is missing and can't be fetched; type: sudo apt-get update && sudo apt-get install -y prometheus"


@cache
def promtool() -> str:
    """The program's path. Fails the test, rather than skipping it, where there is none to be had."""
    unpacked = TOOLS / "usr" / "bin" / "promtool"
    if found := shutil.which("promtool"):
        return found
    if not unpacked.exists():
        _fetch()
    assert unpacked.exists(), SENTENCE
    return str(unpacked)


def _fetch() -> None:
    assert shutil.which("apt-get") and shutil.which("dpkg-deb"), SENTENCE
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, check=False)
        packages = list(Path(folder).glob("*.deb"))
        assert packages, SENTENCE
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(TOOLS)], check=True)


def run_promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool(), *arguments], cwd=folder, capture_output=True, text=True, check=False)
