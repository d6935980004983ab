"""A stand-in for the sandbox, where this process is in one already: an agent that a runner started can open no other.

A job is then a child in a folder of its own, within the limits that are around it all. Where nothing is around, it is
refused: no filter of system calls, or a network.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import struct
from asyncio.subprocess import PIPE
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from workbench.sandbox.bubblewrap import PATH
from workbench.sandbox.job import End, Job, Result, SandboxRefused
from workbench.sandbox.kinds import Surroundings, look

DEVICES = Path("/proc/net/dev")
GET_NAME, GET_ADDRESSES = 0x8910, 0x8912
NAME_BYTES, DEVICE_BYTES = 16, 40
"""Bytes of a name, and of what the kernel fills in for a device."""
MOST_DEVICES, MOST_NUMBERS = 256, 4096


def require_sandbox_around(found: Surroundings, devices: Set[str]) -> None:
    """`devices`: of the network. Raises SandboxRefused where this process is in no sandbox. Pure."""
    if not (found.has_filter and found.no_new_privileges) or devices - {"lo"}:
        raise SandboxRefused(
            'the policy says isolation = "around", and no sandbox is around this process: there is no filter of system '
            'calls, or there is a network. Write isolation = "own"'
        )


def network_devices(told: Path = DEVICES) -> set[str]:
    """Return devices by `told`, or, where /proc is an empty folder (in a container that masks its own), by asking the
    kernel: for those that have an address of IPv4, and for each number that one is likely to have."""
    with suppress(FileNotFoundError):
        return {line.partition(":")[0].strip() for line in told.read_text().splitlines()[2:]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        room = ctypes.create_string_buffer(DEVICE_BYTES * MOST_DEVICES)
        asked = struct.pack("iP", len(room), ctypes.addressof(room))
        filled, _ = struct.unpack("iP", fcntl.ioctl(one, GET_ADDRESSES, asked))
        names = [room.raw[at : at + NAME_BYTES] for at in range(0, filled, DEVICE_BYTES)]
        for number in range(1, MOST_NUMBERS + 1):
            with suppress(OSError):
                names.append(fcntl.ioctl(one, GET_NAME, struct.pack("16si16x", b"", number))[:NAME_BYTES])
    return {name.partition(b"\0")[0].decode(errors="replace") for name in names}


class Surrounding:
    """Raises SandboxRefused where nothing is around."""

    def __init__(self) -> None:
        require_sandbox_around(look(), network_devices())

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
