"""Find and end the processes of a fleet. Only what carries the fleet's mark in its environment is ever ended."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil

from services.cli.fleet.folder import FleetFolder, FleetRecord
from services.cli.fleet.supervisord import FLEET_MARK

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
        _signal(process)
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
        try:
            yield f"{process.name()} ({process.pid})"
        except psutil.NoSuchProcess:
            continue


def _signal(process: psutil.Process) -> None:
    try:
        process.terminate()
    except psutil.NoSuchProcess:
        return


def _kill_after(timeout_s: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Kill those that have not ended by then; returns them."""
    _, alive = psutil.wait_procs(processes, timeout_s)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, 10.0)
    return alive
