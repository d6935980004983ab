"""Sockets that listen inside a sandbox, fetched from there: listener.py says how they are made."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from types import TracebackType
from typing import Self

from workbench.sandbox import bubblewrap, listener
from workbench.sandbox.job import Job, SandboxError

WITHIN_S = 10.0
SHOWN_BYTES = 2000


class Channel:
    """Between whoever starts a run and what makes its sockets. `far_end`: the descriptor to make them at."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._near, self._far = socket.socketpair()
        self._near.settimeout(WITHIN_S)

    @property
    def far_end(self) -> int:
        return self._far.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._near.close()
        self._far.close()

    def fetch(self, pid: int) -> None:
        """Give each who waits for a socket theirs. `pid`: a process of the run. Raises SandboxError."""
        if not bubblewrap.listens_from_inside(self._job):
            self._make_from_outside(pid)
        wanted = self._job.listeners
        try:
            _, descriptors, _, _ = socket.recv_fds(self._near, 1, len(wanted), socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise SandboxError(f"the way out of a sandbox was not made: {error}") from error
        if len(descriptors) != len(wanted):  # as where this process may open no more
            for descriptor in descriptors:
                os.close(descriptor)
            raise SandboxError(f"{len(descriptors)} of {len(wanted)} ways out of a sandbox were made")
        for take, descriptor in zip(wanted.values(), descriptors, strict=True):
            take(socket.socket(fileno=descriptor))

    def _make_from_outside(self, pid: int) -> None:
        python = shutil.which("python3", path=bubblewrap.PATH) or sys.executable
        ports = map(str, self._job.listeners)
        try:
            made = subprocess.run(
                [*bubblewrap.listener_in(python), str(self.far_end), *ports, listener.OF, str(pid)],
                pass_fds=(self.far_end,),
                capture_output=True,
                timeout=WITHIN_S,
                cwd="/",
                env={},
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"the way out of a sandbox can't be made: {error}") from error
        if made.returncode:
            said = made.stderr[-SHOWN_BYTES:].decode(errors="replace").strip()
            raise SandboxError(f"the way out of a sandbox can't be made: {said or f'it ended with {made.returncode}'}")
