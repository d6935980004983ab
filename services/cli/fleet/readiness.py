"""Wait until every process of a fleet can do its work, notice one that never will, and show how far it is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import ChannelClosedByBroker
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from ratchet.bus.topology import Topology
from ratchet.service.errors import TimedOut
from services.cli.fleet.service_http import readiness
from services.cli.fleet.supervisord import ProcessState, Program
from services.cli.terminal import CommandError

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """`messages` are ready for delivery (those in hand are not counted); None: there is no such queue."""

    name: str
    messages: int | None
    consumers: int = 0


def queue_depths(connection: BlockingConnection, topology: Topology, namespace: str) -> list[QueueDepth]:
    """Every queue of the topology, the retry ladder last."""
    channel, found = connection.channel(), list[QueueDepth]()
    for name in [queue.name for queue in topology.queues] + [rung.name for rung in topology.rungs]:
        try:
            said = channel.queue_declare(namespace + name, passive=True).method
            found.append(QueueDepth(name, said.message_count, said.consumer_count))
        except ChannelClosedByBroker as error:
            if error.reply_code != NOT_FOUND:
                raise
            channel = connection.channel()
            found.append(QueueDepth(name, None))
    channel.close()
    return found


HOPELESS_STARTS = 3
"""A program that had so many pids within one wait ends again each time it is started."""
POLL_S = 0.25
NO_CONNECTION, WAITS = "no connection to the broker", "waits for the broker"

Progress = Mapping[str, str]
"""Per program `ready`, or its own reason why not."""


@dataclass
class Waiting:
    """`processes` asks the supervisor; `show` is called with the progress at every reading.

    `broker_answers`: of a broker that is one of the programs, the one without HTTP. What services say of it while they
    wait for it is not shown, but told where they wait too long.
    """

    programs: tuple[Program, ...]
    logs: Path
    processes: Callable[[], Mapping[str, ProcessState]]
    show: Callable[[Progress], None]
    broker_answers: Callable[[], bool] | None = None
    _answered: bool = field(default=False, init=False)

    def until_ready(self, timeout_s: float) -> None:
        """Raises TimedOut with each reason, or CommandError with the last words of a process that keeps ending."""
        deadline = time.monotonic() + timeout_s
        pids: dict[str, set[int]] = {}
        while True:
            states = self.processes()
            progress = {program.name: self._reason(program, states) for program in self.programs}
            waits = {name for name, reason in progress.items() if reason.startswith(NO_CONNECTION)}
            hidden = dict.fromkeys(waits, WAITS) if self.broker_answers else {}
            self.show(progress | hidden)
            if all(reason == "ready" for reason in progress.values()):
                return
            self._give_up_on_hopeless(states, pids)
            if time.monotonic() > deadline:
                waiting = "; ".join(f"{name}: {reason}" for name, reason in progress.items() if reason != "ready")
                raise TimedOut(f"not ready after {timeout_s:.0f} s: {waiting}. Logs: {self.logs}")
            time.sleep(POLL_S)

    def _reason(self, program: Program, states: Mapping[str, ProcessState]) -> str:
        state = states.get(program.name)
        if state is None or not state.alive:
            return "ended, will be started again" if state and state.state == "BACKOFF" else "not running"
        if program.http_port is None:
            self._answered = self._answered or self.broker_answers is None or self.broker_answers()
            return "ready" if self._answered else "starting"
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
            log = self.logs / f"{program.name}.log"
            if seen and not state.alive and (error := last_error(log)) and error.get("hopeless"):
                raise CommandError(f"{program.name} can't start: {error['message']} (log: {log})")
            if state.state == "FATAL" or len(seen) >= HOPELESS_STARTS:
                raise CommandError(f"{program.name} keeps ending: {last_words(log)} (log: {log})")


def last_words(log: Path) -> str:
    """The last error in a service's log: the message of a JSON line, else the last line there is."""
    if (error := last_error(log)) is not None:
        return str(error["message"])
    lines = _last_lines(log)
    if lines is None:
        return "it wrote no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing to its log")


def last_error(log: Path) -> dict[str, Any] | None:
    """The last line of level ERROR among the last ones of a service's log."""
    return next((entry for line in reversed(_last_lines(log) or ()) if (entry := _error(line)) is not None), None)


def _last_lines(log: Path) -> list[str] | None:
    """None where there is no log."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 8192))
            return stream.read().decode(errors="replace").splitlines()
    except OSError:
        return None


def _error(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return {"message": None, **entry} if isinstance(entry, dict) and entry.get("level") == "ERROR" else None


class ReadinessView:
    """Call `show` at every reading; nothing is printed twice where the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._spinners: dict[str, Spinner] = {}
        self._shown: dict[str, str] = {}
        self._since = time.monotonic()

    @contextmanager
    def open(self) -> Iterator[ReadinessView]:
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, refresh_per_second=8) as self._live:
            yield self

    def show(self, progress: Progress) -> None:
        if self._live:
            self._live.update(self._table(progress))
            return
        for name, reason in progress.items():
            if self._shown.get(name) != _without_numbers(reason):
                self._console.print(f"{name}: {reason}", markup=False)
        self._shown = {name: _without_numbers(reason) for name, reason in progress.items()}

    def _table(self, progress: Progress) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, reason in progress.items():
            mark = "[green]✔[/green]" if reason == "ready" else self._spinners.setdefault(name, Spinner("dots"))
            table.add_row(mark, name, "" if reason == "ready" else reason)
        table.add_row("", f"[dim]{time.monotonic() - self._since:.0f} s[/dim]", "")
        return table


def _without_numbers(reason: str) -> str:
    """`since 3 s` and `since 4 s` are the same reason."""
    return re.sub(r"\d+", "", reason)
