"""A PostgreSQL of the test's own, as a private process of Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.private_broker import free_port

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
USER = "postgres"


class Postgres:
    """A server that can be frozen and stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._as: dict[str, Any] = {"user": USER, "group": USER} if os.geteuid() == 0 else {}
        """PostgreSQL does not run as root."""
        if self._as:
            shutil.chown(folder, USER, USER)
        self._call("initdb", "--auth=trust", f"--username={USER}", "--no-sync")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        self._call("pg_ctl", "--wait", f"--log={self._folder}/log", f"--options={options}", "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it; `immediate` is like a crash."""
        self._call("pg_ctl", "--wait", f"--mode={how}", "stop")

    def _call(self, program: str, *arguments: str) -> None:
        command = [FOLDERS[-1] / program, f"--pgdata={self._folder}/data", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._as)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a server, removed at the end."""
    folder = Path(mkdtemp(prefix="ratchet-postgres-"))
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
