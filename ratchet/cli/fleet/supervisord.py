"""Start, ask and stop the fleet's supervisord, over its Unix socket. Which programs it runs is not decided here."""

from __future__ import annotations

import os
import subprocess
import sys
import xmlrpc.client
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, cast

from ratchet.cli.fleet.folder import FleetFolder
from ratchet.cli.terminal.exit_codes import CommandError

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
    """In a session of its own, so that it outlives the terminal. Its programs inherit this environment."""
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
            self._rpc.startProcess(_full_name(name), False)
        return down


def _full_name(name: str) -> str:
    return name if name == "broker" else f"services:{name}"
