"""The gateway: `python -m services.gateway PORT HOST:PORT…`, until SIGTERM; with `check PORT` its health check.

It is healthy while it turns: that nobody leads for a moment is not its fault.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

import uvloop

from ratchet.service.telemetry import Log, log_to_stdout
from services.gateway.leader import Address, Leader, Relay

log = Log("gateway")

USAGE = "usage: python -m services.gateway PORT HOST:PORT… | check PORT"


async def relay(port: int, orchestrators: Sequence[Address]) -> None:
    """Returns after SIGTERM or SIGINT; connections end with the process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    leader = Leader(orchestrators)
    following = asyncio.create_task(leader.follow())
    server = await asyncio.start_server(Relay(lambda: leader.address), "0.0.0.0", port)
    log.info("ready", f"relays port {port} to the leader among {orchestrators}", port=port)
    await stop.wait()
    server.close()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def address(text: str) -> Address:
    """Raises ValueError for what is not HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not (host and colon):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def main(arguments: Sequence[str]) -> str | None:
    match arguments:
        case ["check", port]:
            with suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 2):
                return None
            return f"nothing listens on port {port}"
        case [port, *orchestrators] if orchestrators:
            log_to_stdout("gateway")
            uvloop.run(relay(int(port), [address(one) for one in orchestrators]))
            return None
    return USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
