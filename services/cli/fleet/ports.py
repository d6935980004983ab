"""Finds which of the fleet's ports are taken, by whom as far as this user may see, and what to type instead."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import psutil

from services.cli.fleet.folder import FleetFolder, FleetRecord
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.supervisord import FLEET_MARK
from services.cli.terminal import UsageError

LEFTOVER_TIMEOUT_S = 40.0


def supervisor_process(record: FleetRecord) -> psutil.Process | None:
    """The recorded supervisor if it still runs: a pid that another process got since is not it."""
    try:
        process = psutil.Process(record.supervisor_pid)
        same = abs(process.create_time() - record.supervisor_started) < 1.0
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def marked_processes(folder: FleetFolder) -> list[psutil.Process]:
    """Every process of this user that was started by this fleet's supervisor, or by what it started."""
    return [process for process in psutil.process_iter() if _is_marked(process, folder)]


def stop_supervisor(process: psutil.Process, timeout_s: float) -> bool:
    """It ends the services first, then the broker, each with its grace time. False if it had to be killed."""
    process.terminate()
    return not _kill_after(timeout_s, [process])


def stop_leftovers(folder: FleetFolder) -> list[str]:
    """End what outlived its supervisor: asked first, then killed. Returns `name (pid)` of each."""
    left = marked_processes(folder)
    described = list(_describe(left))
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _kill_after(LEFTOVER_TIMEOUT_S, left)
    return described


def _is_marked(process: psutil.Process, folder: FleetFolder) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        return process.environ().get(FLEET_MARK) == str(folder.root) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _describe(processes: list[psutil.Process]) -> Iterator[str]:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            yield f"{process.name()} ({process.pid})"


def _kill_after(timeout_s: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Kill those that have not ended by then; returns them."""
    _, alive = psutil.wait_procs(processes, timeout_s)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, 10.0)
    return alive


def is_taken(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def holder(port: int) -> str:
    """`name (pid 123)` of the process that listens on the port, or `another process` where that can't be seen."""
    try:
        listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        pid = next((c.pid for c in listening if c.laddr and c.laddr[1] == port), None)
        return f"{psutil.Process(pid).name()} (pid {pid})" if pid else "another process"
    except psutil.Error:
        return "another process"


def taken_ports(wanted: Mapping[int, str]) -> list[str]:
    """A sentence part for each port of `wanted` (port: who needs it) that is taken."""
    return [f"{port} (for {who}) by {holder(port)}" for port, who in wanted.items() if is_taken(port)]


STEP = 100
PORT_BASE, AMQP_PORT = "--port-base", "--amqp-port"
DEMOS = ("--real", "--agent", "--tools", "--sandboxed")
"""Options of `ratchet demo` that targets of make are named after; the last one typed counts."""
PortsOf = Callable[[FleetOptions], Iterable[int]]


def on_other_ports(
    options: FleetOptions, ports_of: PortsOf, typed: Sequence[str], environment: Mapping[str, str]
) -> str:
    """A sentence part. `ports_of`: what a fleet of these options listens on, or UsageError; `typed`: behind `ratchet`.

    Of a demo that make started the sentence has make's command too.
    """
    free = _free(options, ports_of)
    base, amqp = (str(free.port_base), str(free.amqp_port)) if free else ("N", "N")
    command = shlex.join(["ratchet", *_without_ports(typed), PORT_BASE, base, AMQP_PORT, amqp])
    if "demo" in typed and "MAKELEVEL" in environment:
        target = "-".join(["demo", *[word[2:] for word in DEMOS if word in typed][-1:]])
        return f"make {target} PORT_BASE={base} AMQP_PORT={amqp} (which is {command})"
    return command


def _free(options: FleetOptions, ports_of: PortsOf) -> FleetOptions | None:
    """The same options on the next ports on which nobody listens; None where there are none."""
    moved = options
    while True:
        moved = replace(moved, port_base=moved.port_base + STEP, amqp_port=moved.amqp_port + STEP)
        try:
            if not any(map(is_taken, ports_of(moved))):
                return moved
        except UsageError:
            return None


def _without_ports(typed: Sequence[str]) -> list[str]:
    kept, words = [], iter(typed)
    for word in words:
        if word in (PORT_BASE, AMQP_PORT):
            next(words, None)
        elif not word.startswith((f"{PORT_BASE}=", f"{AMQP_PORT}=")):
            kept.append(word)
    return kept
