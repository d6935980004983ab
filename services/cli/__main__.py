"""The `ratchet` command."""

from __future__ import annotations

import gc
import io
import sys


def main() -> None:
    """Exit codes: `ratchet --help` lists them. What a terminal has no character for is shown as a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    gc.set_threshold(50_000)  # what is imported stays; looking for garbage in it took a twentieth of `ratchet --help`
    from services.cli.app import app

    app(prog_name="ratchet")


if __name__ == "__main__":
    main()
