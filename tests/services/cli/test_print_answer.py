"""What a model said, on a terminal and in a file."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PRINT = "from services.cli.terminal import print_answer; print_answer('a\\x1b[2Jb\\u202ec\\td')"


def test_on_a_terminal_control_characters_are_written_out_and_in_a_file_they_stay() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", PRINT], stdout=theirs, check=True)
    shown = os.read(ours, 1000).decode()
    kept = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, check=True).stdout.decode()

    assert shown.strip() == "a\\x1b[2Jb\\u202ec\td"
    assert kept == "a\x1b[2Jb\u202ec\td\n"
