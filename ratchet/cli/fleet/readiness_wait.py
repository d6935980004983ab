"""Wait until every process of the fleet can do its work, and notice one that never will."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.cli.fleet.service_http import readiness
from ratchet.cli.fleet.supervisor_config import Program
from ratchet.cli.fleet.supervisord import ProcessState
from ratchet.cli.terminal.exit_codes import CommandError, TimedOut

HOPELESS_STARTS = 3
"""A program that had so many pids within one wait ends again each time it is started."""
POLL_S = 0.25

Standing = Mapping[str, str]
"""Per program `ready`, or its own reason why not."""


@dataclass
class Waiting:
    """`processes` asks the supervisor; `show` is called with the standing at every look."""

    programs: tuple[Program, ...]
    logs: Path
    processes: Callable[[], Mapping[str, ProcessState]]
    show: Callable[[Standing], None]

    def until_ready(self, timeout_s: float) -> None:
        """Raises TimedOut with each reason, or CommandError with the last words of a process that keeps ending."""
        deadline = time.monotonic() + timeout_s
        pids: dict[str, set[int]] = {}
        while True:
            states = self.processes()
            standing = {program.name: self._stand(program, states) for program in self.programs}
            self.show(standing)
            if all(stand == "ready" for stand in standing.values()):
                return
            self._give_up_on_hopeless(states, pids)
            if time.monotonic() > deadline:
                waiting = "; ".join(f"{name}: {stand}" for name, stand in standing.items() if stand != "ready")
                raise TimedOut(f"not ready after {timeout_s:.0f} s: {waiting}. Logs: {self.logs}")
            time.sleep(POLL_S)

    def _stand(self, program: Program, states: Mapping[str, ProcessState]) -> str:
        state = states.get(program.name)
        if state is None or not state.alive:
            return "ended, will be started again" if state and state.state == "BACKOFF" else "not running"
        if program.http_port is None:
            return "ready"
        answer = readiness(program.http_port)
        return "ready" if answer.ready else answer.reason or "not ready"

    def _give_up_on_hopeless(self, states: Mapping[str, ProcessState], pids: dict[str, set[int]]) -> None:
        for program in self.programs:
            state = states.get(program.name)
            if state is None:
                continue
            seen = pids.setdefault(program.name, set())
            if state.alive:
                seen.add(state.pid)
            if state.state == "FATAL" or len(seen) >= HOPELESS_STARTS:
                log = self.logs / f"{program.name}.log"
                raise CommandError(f"{program.name} keeps ending: {last_words(log)} (log: {log})")


def last_words(log: Path, size: int = 8192) -> str:
    """The last error in a service's log: the message of a JSON line, else the last line there is."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - size))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return "it wrote no log"
    for line in reversed(lines):
        if (message := _error_message(line)) is not None:
            return message
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing to its log")


def _error_message(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return str(entry.get("message")) if isinstance(entry, dict) and entry.get("level") == "ERROR" else None
