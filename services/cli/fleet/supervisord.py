"""The supervisor of a fleet on this machine: its configuration, its start, and what it is asked."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import xmlrpc.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast

from services.cli.fleet.folder import FleetFolder
from services.cli.terminal import CommandError

FIRST_SECONDS = 20
"""A program that ends sooner than this after its start is started again with a growing pause (1 s, 2 s, 3 s …)."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process of the fleet. `environment` is added to the supervisor's own; it must hold no secret.

    `ours`: false for a server of somebody else's make, which has no user of the broker.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    http_port: int | None = None
    stop_wait_s: int = 40
    ours: bool = True


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


FLEET_MARK = "RATCHET_FLEET"
"""An environment variable of every process of a fleet, with the fleet's folder as its value."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """`state` is supervisord's word: STARTING, RUNNING, BACKOFF, STOPPING, STOPPED, EXITED, FATAL. `pid` 0: none."""

    name: str
    state: str
    pid: int
    reason: str

    @property
    def alive(self) -> bool:
        return self.pid != 0


def start_supervisord(folder: FleetFolder, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that it outlives the terminal. Its programs inherit this environment."""
    folder.process_logs.mkdir(parents=True, exist_ok=True)
    folder.socket.unlink(missing_ok=True)
    with (folder.process_logs / "supervisor.out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(folder.supervisor_config)],
            env={**os.environ, **environment, FLEET_MARK: str(folder.root)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class Supervisor:
    """A running supervisord."""

    def __init__(self, folder: FleetFolder) -> None:
        self._url = f"unix://{folder.socket}"

    @property
    def _rpc(self) -> Any:
        """A new connection each time: the library's transport does not survive a failed one."""
        from supervisor.xmlrpc import SupervisorTransport

        transport = SupervisorTransport(serverurl=self._url)
        return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor

    def answers(self) -> bool:
        try:
            self._rpc.getState()
        except (OSError, HTTPException, xmlrpc.client.Error):
            return False
        return True

    def processes(self) -> dict[str, ProcessState]:
        """Raises CommandError if the supervisor does not answer."""
        try:
            listed = cast(list[dict[str, Any]], self._rpc.getAllProcessInfo())
        except (OSError, HTTPException, xmlrpc.client.Error) as error:
            raise CommandError(
                f"the fleet's supervisor does not answer ({error}): `ratchet down`, then `ratchet up`"
            ) from None
        states = (ProcessState(p["name"], p["statename"], p["pid"], p["spawnerr"]) for p in listed)
        return {state.name: state for state in states}

    def start_what_is_down(self) -> list[str]:
        """The names of the programs that were not running and are now started again."""
        down = [state.name for state in self.processes().values() if state.state in ("STOPPED", "EXITED", "FATAL")]
        for name in down:
            self._rpc.startProcess(name if name == "broker" else f"services:{name}", False)
        return down
