"""The fleet's programs as a supervisord configuration. Pure; settings that hold secrets are not written to it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.cli.fleet.folder import FleetFolder

FIRST_SECONDS = 20
"""A program that ends sooner than this after its start is started again with a growing pause (1 s, 2 s, 3 s …)."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process of the fleet. `environment` is added to the supervisor's own; it must hold no secret."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    http_port: int | None = None
    stop_wait_s: int = 40


def render(folder: FleetFolder, working_folder: Path, broker: Program | None, services: Sequence[Program]) -> str:
    """The broker starts first and stops last; the services stop together."""
    sections = [_supervisord(folder)]
    if broker:
        sections.append(_program(broker, folder, working_folder, priority=1))
    sections += [_program(service, folder, working_folder, priority=10) for service in services]
    sections.append(_section("group:services", {"programs": ",".join(s.name for s in services), "priority": 10}))
    return "\n".join(sections)


def _supervisord(folder: FleetFolder) -> str:
    return "\n".join(
        (
            _section("unix_http_server", {"file": _text(folder.socket), "chmod": "0700"}),
            _section(
                "supervisord",
                {
                    "logfile": _text(folder.process_logs / "supervisor.log"),
                    "logfile_maxbytes": "5MB",
                    "logfile_backups": 2,
                    "pidfile": _text(folder.root / "supervisord.pid"),
                    "nodaemon": "true",
                    "silent": "true",
                },
            ),
            _section(
                "rpcinterface:supervisor",
                {"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"},
            ),
        )
    )


def _program(program: Program, folder: FleetFolder, working_folder: Path, *, priority: int) -> str:
    return _section(
        f"program:{program.name}",
        {
            "command": _text(shlex.join(program.command)),
            "directory": _text(working_folder),
            "environment": ",".join(f'{name}="{_text(value)}"' for name, value in program.environment.items()),
            "priority": priority,
            "autorestart": "true",
            "startsecs": FIRST_SECONDS,
            "startretries": 1000,
            "stopsignal": "TERM",
            "stopwaitsecs": program.stop_wait_s,
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": _text(folder.process_logs / f"{program.name}.log"),
            "stdout_logfile_maxbytes": "20MB",
            "stdout_logfile_backups": 3,
        },
    )


def _section(name: str, values: Mapping[str, object]) -> str:
    return "\n".join((f"[{name}]", *(f"{key}={value}" for key, value in values.items()), ""))


def _text(value: object) -> str:
    """Supervisord expands `%` in values."""
    return str(value).replace("%", "%%")
