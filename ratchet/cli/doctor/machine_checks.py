"""The checks of `ratchet doctor` that look at this machine: Python, libraries, models, ports, disk, memory, limits."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import psutil

from ratchet.cli.doctor.check import Check
from ratchet.cli.fleet.options import JUDGE_MODEL, SMALL_MODEL
from ratchet.cli.fleet.ports import taken_ports
from ratchet.logs.index_check import disagreement
from ratchet.logs.names import TASK_INDEX

GIGABYTE = 1_000_000_000
LEAST_PYTHON = (3, 11)
MODEL_LIBRARIES = ("torch", "transformers", "peft")
LEAST_OPEN_FILES = 1024


def machine_checks(logs_dir: Path, wanted_ports: Mapping[int, str] | None) -> Iterator[Check]:
    """`wanted_ports` is None while a fleet is up here: then they are taken by it."""
    yield _python()
    yield _libraries()
    yield from (_model(Path(model)) for model in (SMALL_MODEL, JUDGE_MODEL))
    yield _ports(wanted_ports)
    yield _logs_folder(logs_dir)
    yield index_agrees(logs_dir)
    yield disk_space(shutil.disk_usage(_existing(logs_dir)).free, str(logs_dir))
    yield memory(psutil.virtual_memory().available)
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if _on_windows_drive(Path.cwd()):
        yield Check(
            "folder", "warn", f"{Path.cwd()} is on a Windows drive, where syncing is slow", "move it under ~ in WSL"
        )


def disk_space(free: int, place: str) -> Check:
    """`free` in bytes. RabbitMQ stops taking messages below 0.5 GB."""
    says = f"{free / GIGABYTE:.1f} GB free for {place}"
    if free < GIGABYTE:
        return Check("disk", "fail", says, "free some space: below 0.5 GB the broker takes no messages")
    return Check("disk", "warn", says, "free some space") if free < 5 * GIGABYTE else Check("disk", "ok", says)


def memory(available: int) -> Check:
    """`available` in bytes."""
    says = f"{available / GIGABYTE:.1f} GB available"
    if available < GIGABYTE:
        return Check("memory", "fail", says, "close something: the fleet with its two small models needs about 1.5 GB")
    return Check("memory", "warn", says, "2 GB are safer") if available < 2 * GIGABYTE else Check("memory", "ok", says)


def open_files(limit: int) -> Check:
    says = f"{limit if limit >= 0 else 'any number of'} files may be open"
    few = 0 <= limit < LEAST_OPEN_FILES
    return (
        Check("open files", "warn", says, f"ulimit -n {LEAST_OPEN_FILES}") if few else Check("open files", "ok", says)
    )


def _python() -> Check:
    says = f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info < LEAST_PYTHON:
        return Check("python", "fail", says, "install Python 3.11 or newer")
    if sys.prefix == sys.base_prefix:
        return Check("python", "warn", f"{says}, not a virtual environment", "make setup")
    return Check("python", "ok", says)


def _libraries() -> Check:
    missing = [name for name in MODEL_LIBRARIES if find_spec(name) is None]
    if missing:
        fix = "pip install 'ratchet[all]'   (or use --engine vllm or echo)"
        return Check("libraries", "warn", f"not installed: {', '.join(missing)}", fix)
    return Check("libraries", "ok", f"{', '.join(MODEL_LIBRARIES)} are installed")


def _model(folder: Path) -> Check:
    if (folder / "config.json").exists():
        return Check("model", "ok", f"{folder} is there")
    return Check("model", "warn", f"{folder} is not made yet; `ratchet up` makes it", "ratchet models make")


def _ports(wanted: Mapping[int, str] | None) -> Check:
    if wanted is None:
        return Check("ports", "ok", "in use by the fleet that is up here")
    if taken := taken_ports(wanted):
        fix = "free them, or: ratchet up --port-base N --amqp-port N"
        return Check("ports", "fail", f"taken: {', '.join(taken)}", fix)
    return Check("ports", "ok", f"{len(wanted)} free, from {min(wanted)} to {max(wanted)}")


def _logs_folder(logs_dir: Path) -> Check:
    if os.access(_existing(logs_dir), os.W_OK):
        return Check("logs", "ok", f"{logs_dir} can be written")
    return Check(
        "logs", "fail", f"{logs_dir} can't be written", f"sudo chown -R $USER {logs_dir}, or set RATCHET_LOGS_DIR"
    )


def index_agrees(logs_dir: Path) -> Check:
    """Of the index of tasks and the logs it is a cache over."""
    index = logs_dir / TASK_INDEX
    if not index.exists():
        return Check("index", "ok", "none yet: the orchestrator makes it when it starts")
    if (why := disagreement(index, logs_dir)) is None:
        return Check("index", "ok", f"{index} agrees with the logs where it was looked into")
    todo = "start the orchestrator anew: it builds the index again from the logs"
    return Check("index", "fail", f"{index} does not agree with the logs: {why}", todo)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())


def _on_windows_drive(folder: Path) -> bool:
    return "microsoft" in platform.release().lower() and folder.parts[:2] == ("/", "mnt")
