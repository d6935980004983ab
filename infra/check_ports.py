"""Checks that the ports of `make demo` are free before it installs: `python3 infra/check_ports.py demo 8700 5673`.

Runs before there is an environment, so on the standard library alone, on any Python 3. Once it is there, `ratchet demo`
looks itself: at the broker's other ports too, and at who holds them.
"""

from __future__ import annotations

import os
import socket
import sys

SERVICES = (0, 10, 50, 60)
"""Ports of orchestrator, agent, scorer and trainer, counted from the base."""
STEP = 100
LAST_BASE, LAST_AMQP = 65_386, 45_535
"""The highest that `ratchet demo` takes: other ports of the fleet and the broker follow, up to 65,535."""


def ports_of(base: int, amqp: int) -> list[int]:
    return [*(base + service for service in SERVICES), *([] if os.environ.get("RATCHET_AMQP_URL") else [amqp])]


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def advice(target: str, base: int, amqp: int) -> str | None:
    """Say which ports are taken and what to type instead. None: all are free, or `ratchet demo` will refuse them."""
    if not _are_allowed(base, amqp):
        return None
    taken = [str(port) for port in ports_of(base, amqp) if is_taken(port)]
    if not taken:
        return None
    taken_ports = f"taken: port {', port '.join(taken)}. Free them, or"
    while any(map(is_taken, ports_of(base, amqp))):
        base, amqp = base + STEP, amqp + STEP
        if not _are_allowed(base, amqp):
            return f"{taken_ports} name others: make {target} PORT_BASE=N AMQP_PORT=N"
    return f"{taken_ports}: make {target} PORT_BASE={base} AMQP_PORT={amqp}"


def _are_allowed(base: int, amqp: int) -> bool:
    return 1024 <= base <= LAST_BASE and 1024 <= amqp <= LAST_AMQP


if __name__ == "__main__":
    base, amqp = (int(port) if port.isdecimal() else 0 for port in sys.argv[2:])
    sys.exit(advice(sys.argv[1], base, amqp))
