"""The relay of a sandbox that has a root of its own, run outside of it: relay.py says how, this starts and ends it."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ratchet.sandbox import relay
from ratchet.sandbox.job import SandboxError

WITHIN_S = 10.0


@contextmanager
def relayed(relays: Mapping[int, Path], pid: int) -> Iterator[None]:
    """Listens in the network of that process when this is entered, and is gone when it is left, or this process is.

    Raises SandboxError.
    """
    places = (f"{port}={path}" for port, path in relays.items())
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", relay.__file__, relay.FROM_OUTSIDE, str(pid), *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={},
        )
    except OSError as error:
        raise SandboxError(f"the way out of a sandbox can't be started: {error}") from error
    with process:
        try:
            _wait(process)
            yield
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout and process.stderr
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(WITHIN_S * 1000):
        raise SandboxError(f"the way out of a sandbox did not listen within {WITHIN_S:g} s")
    if process.stdout.read(1) != relay.LISTENS:
        said = process.stderr.read(2000).decode(errors="replace").strip()
        raise SandboxError(f"the way out of a sandbox does not listen: {said or 'it ended without a word'}")
