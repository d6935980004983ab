"""Finds the ports that the fleet wants and that are taken, and by whom as far as this user may see."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

import psutil

from services.cli.terminal import CommandError


def is_taken(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def holder(port: int) -> str:
    """`name (pid 123)` of the process that listens on the port, or `another process` where that can't be seen."""
    try:
        listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        pid = next((c.pid for c in listening if c.laddr and c.laddr[1] == port), None)
        return f"{psutil.Process(pid).name()} (pid {pid})" if pid else "another process"
    except psutil.Error:
        return "another process"


def taken_ports(wanted: Mapping[int, str]) -> list[str]:
    """A sentence part for each port of `wanted` (port: who needs it) that is taken."""
    return [f"{port} (for {who}) by {holder(port)}" for port, who in wanted.items() if is_taken(port)]


def require_free(wanted: Mapping[int, str], instead: Callable[[], str]) -> None:
    """Raises CommandError naming each taken port, who holds it and what to type `instead`."""
    if taken := taken_ports(wanted):
        raise CommandError(f"taken: port {', port '.join(taken)}. Free them, or start on others: {instead()}")
