"""Have the small models made, in a process of its own: the command line itself never imports torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ratchet.cli.terminal.exit_codes import CommandError

LAST_LINES = 5


def make_models(out: Path, say: Callable[[str], None]) -> str:
    """Run the model maker; each line of its progress goes to `say`. Returns what it printed: one JSON line.

    Raises CommandError with its last lines if it fails.
    """
    maker = subprocess.Popen(
        [sys.executable, "-m", "ratchet.models.toy.make", "make", "--out", str(out)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert maker.stderr is not None and maker.stdout is not None
    lines: list[str] = []
    try:
        for line in maker.stderr:
            lines = [*lines[-LAST_LINES:], line.rstrip()]
            say(line.rstrip())
        printed = maker.stdout.read()
        if maker.wait() != 0:
            raise CommandError(f"the models could not be made: {' / '.join(lines)}")
        return printed.strip()
    finally:
        if maker.poll() is None:
            maker.terminate()
            maker.wait()
