"""In place of the sandbox, where this process is in one already: an agent that a runner started can open no other.

A job is then a child in a folder of its own, within the limits that are around it all. Where nothing is around, it is
refused: no filter of system calls, or a network.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ratchet.sandbox.bubblewrap import PATH
from ratchet.sandbox.job import End, Job, Result, SandboxRefused
from ratchet.sandbox.surroundings import Surroundings, look


def require_sandbox_around(found: Surroundings, network: str) -> None:
    """`network`: /proc/net/dev. Raises SandboxRefused where this process is in no sandbox. Pure."""
    devices = {line.partition(":")[0].strip() for line in network.splitlines()[2:]}
    if not (found.has_filter and found.no_new_privileges) or devices - {"lo"}:
        raise SandboxRefused(
            'the policy says isolation = "around", and no sandbox is around this process: there is no filter of system '
            'calls, or there is a network. Write isolation = "own"'
        )


class Surrounding:
    """Raises SandboxRefused where nothing is around."""

    def __init__(self) -> None:
        require_sandbox_around(look(), Path("/proc/net/dev").read_text())

    async def run(self, job: Job) -> Result:
        """Files, mounts and descriptors of a job are not given to it: it has a command and what it reads."""
        with TemporaryDirectory(prefix="ratchet-tools-", ignore_cleanup_errors=True) as folder:
            process = await asyncio.create_subprocess_exec(
                *job.command,
                cwd=folder,
                env={"PATH": PATH, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", **job.environment},
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(job.limits.wall_s):
                    stdout, stderr = await process.communicate(job.stdin)
            except TimeoutError:
                return Result(End.WALL_TIME, f"it was ended after {job.limits.wall_s:g} s")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            code = process.returncode or 0
            if code < 0:
                return Result(End.SIGNALLED, f"it was ended by signal {-code}", signal=-code, stderr=stderr)
            return Result(End.EXITED, f"it exited with {code}", exit_code=code, stdout=stdout, stderr=stderr)
