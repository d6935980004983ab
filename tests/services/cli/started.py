"""A fleet as `ratchet up` records it, that was never started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.cli.fleet.folder import FleetRecord, StartedProgram
from services.cli.fleet.options import FleetOptions


def started(options: FleetOptions, programs: dict[str, int | None], **changed: Any) -> FleetRecord:
    """`programs`: each with its port of HTTP."""
    plain: dict[str, Any] = {
        "supervisor_pid": 1,
        "supervisor_started": 0.0,
        "stop_timeout_s": 1.0,
        "amqp_url": "amqp://here",
        "namespace": "",
        "own_broker": True,
        "logs_dir": Path("logs"),
    }
    planned = (StartedProgram(name=name, http_port=port, log=Path("log")) for name, port in programs.items())
    return FleetRecord(options=options, programs=tuple(planned), **plain | changed)
