"""The processes of a fleet, declared once in processes.json: `ratchet up` starts from it, images are probed by it.

infra/ reads the same file. Tests hold docker-compose.yml, Prometheus and the
settings' defaults to it. It leaves out the broker, vLLM, the gateway, and what settings decide (models, replicas).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, NamedTuple

Access = Literal["read", "write"] | None


class DeclaredProcess(NamedTuple):
    """`module` is the folder of services/ it runs, `port` where it listens in a container.

    `local_port` counts from `--port-base` of `ratchet up`. `probe` is the page that says whether it is ready for work:
    a standby orchestrator is. `logs` and `adapters` say how it may reach those folders.
    """

    module: str
    port: int
    local_port: int
    probe: Literal["healthz", "readyz"]
    logs: Access
    adapters: Access


PROCESSES = {
    name: DeclaredProcess(**row)
    for name, row in json.loads(Path(__file__).with_name("processes.json").read_text()).items()
}
