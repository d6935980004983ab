"""The health check of an image: `python -m ratchet.runtime.container_health [healthz|readyz]`; exits with 0 if well.

`healthz`, the default: the process turns. `readyz`: it can do its work. A container of the command line
has no server and is well. It imports little, because it runs every few seconds.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from urllib.error import URLError

from ratchet.runtime.processes import PROCESSES

TIMEOUT_S = 4.0
PORTS = {process.module: process.port for process in PROCESSES.values()}
"""Ports of the services' HTTP servers where no setting names another."""


def complaint(url: str) -> str | None:
    """Say why the server there is not well, or None."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):
            return None
    except (URLError, OSError) as error:
        return f"{url}: {error}"


def main(page: str = "healthz") -> str | None:
    service = os.environ.get("SERVICE", "")
    if service not in PORTS:
        return None
    port = os.environ.get(f"RATCHET_{service.upper()}_HTTP_PORT", PORTS[service])
    return complaint(f"http://127.0.0.1:{port}/{page}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
