"""Targets of attacks: files, sockets, a process with a secret. It uses the standard library alone."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def targets(below: Path = Path("/var/tmp"), victim: int | None = None) -> Iterator[dict[str, Any]]:
    """Make the targets. `victim`: the user of the process, if not this one."""
    secret = secrets.token_hex(16)
    with ExitStack() as stack:
        folder = below / f"ratchet-attacked-{secret[:8]}"
        folder.mkdir(mode=0o755)
        stack.callback(shutil.rmtree, folder)
        (folder / "file").write_text(secret)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        tcp6 = _ipv6(stack)
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        threading.Thread(target=_echo, args=(udp,), daemon=True).start()
        unix, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        abstract.bind(f"\0ratchet-{secret}")
        for listener in (unix, abstract):
            listener.listen(64)
        process = stack.enter_context(
            subprocess.Popen(
                ["sleep", "3600"],
                env={"SECRET": secret, "PATH": "/usr/bin:/bin"},
                **({"user": victim, "group": victim, "extra_groups": []} if victim is not None else {}),
            )
        )
        stack.callback(process.kill)
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        yield {
            "port": tcp.getsockname()[1],
            "port6": tcp6,
            "udp": udp.getsockname()[1],
            "unix": str(folder / "socket"),
            "abstract": f"ratchet-{secret}",
            "file": str(folder / "file"),
            "secret": secret,
            "victim": process.pid,
            "victim_started": started,
            "most_mib": 4,
            "most_processes": 16,
            "most_memory_mib": 192,
        }


def _ipv6(stack: ExitStack) -> int:
    try:
        server = stack.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
    except OSError:
        return 1
    return int(server.getsockname()[1])


def _echo(server: socket.socket) -> None:
    while True:
        try:
            said, sender = server.recvfrom(100)
        except OSError:
            return
        server.sendto(said, sender)
