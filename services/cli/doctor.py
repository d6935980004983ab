"""`ratchet doctor`: can a fleet run here, and what to type where not. Checks this machine, then its broker."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import psutil
import typer
from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import AMQPError, ChannelClosedByBroker
from pydantic import ValidationError
from rich.text import Text

from ratchet.bus.amqp.short_connection import BrokerUnreachable, open_connection, without_password
from ratchet.bus.topology import DEAD_LETTERS, UNROUTABLE, Topology
from ratchet.files.file_system import wrong_storage
from ratchet.logs.index_check import disagreement
from ratchet.logs.names import task_index
from ratchet.service.entry_points import to_install
from ratchet.service.errors import BusError, SettingsError
from ratchet.service.settings import FleetSettings
from ratchet.service.settings_check import require_usable, unknown_names
from services.cli.fleet.folder import FleetAccess, FleetFolder
from services.cli.fleet.local_broker import INSTALL_SENTENCE, server_folder
from services.cli.fleet.options import JUDGE_MODEL, SMALL_MODEL, FleetOptions
from services.cli.fleet.plan import plan_fleet
from services.cli.fleet.ports import supervisor_process, taken_ports
from services.cli.fleet.readiness import QueueDepth, queue_depths
from services.cli.terminal import AsJson, ExitCode, out, print_json
from workbench.sandbox.job import SandboxRefused
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """`fix` is what to type, or to do; None where nothing needs to be done."""

    name: str
    level: Level
    says: str
    fix: str | None = None


def sound(checks: Sequence[Check]) -> bool:
    """A warning does not keep the fleet from working; a failed check does."""
    return all(check.level != "fail" for check in checks)


GIGABYTE = 1_000_000_000
LEAST_PYTHON = (3, 11)
MODEL_LIBRARIES = ("torch", "transformers", "peft")
LEAST_OPEN_FILES = 1024


def machine_checks(
    logs_dir: Path, index_dir: Path, adapters_dir: Path, wanted_ports: Mapping[int, str] | None
) -> Iterator[Check]:
    """`wanted_ports` is None while a fleet is up here: then they are taken by it."""
    yield _python()
    yield _libraries()
    yield from (_model(Path(model)) for model in (SMALL_MODEL, JUDGE_MODEL))
    yield _ports(wanted_ports)
    yield _logs_folder(logs_dir)
    yield _storage(logs_dir, index_dir, adapters_dir)
    yield index_agrees(logs_dir, index_dir)
    yield _sandbox()
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
        fix = f"{to_install('all')}   (or use --engine vllm or echo)"
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


def _storage(logs_dir: Path, index_dir: Path, adapters_dir: Path) -> Check:
    wrong = next(wrong_storage(logs_dir, index_dir, adapters_dir), None)
    if wrong is None:
        return Check("storage", "ok", "logs, index and adapters lie on file systems that are not known to be wrong")
    return Check("storage", "fail", wrong, "see docs/operations.md#storage")


def index_agrees(logs_dir: Path, index_dir: Path) -> Check:
    """Compare the index of tasks with the logs it is a cache over."""
    index = task_index(index_dir)
    if not index.exists():
        return Check("index", "ok", "none yet: the orchestrator makes it when it starts")
    if (why := disagreement(index, logs_dir)) is None:
        return Check("index", "ok", f"{index} agrees with the logs where it was looked into")
    todo = "start the orchestrator anew: it builds the index again from the logs"
    return Check("index", "fail", f"{index} does not agree with the logs: {why}", todo)


def _sandbox() -> Check:
    """Attacked as at a service's start; only a scorer that runs code needs one."""
    try:
        return Check("sandbox", "ok", f"holds: {Sandbox.open(SandboxSettings()).facts.says}")
    except SandboxRefused as error:
        return Check("sandbox", "warn", str(error), "see docs/sandbox.md; only the scorer `tests` needs one")
    except ValidationError as error:
        fault = error.errors()[0]["msg"]
        return Check("sandbox", "fail", f"its settings can't be used: {fault}", "correct RATCHET_SANDBOX_…")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())


def _on_windows_drive(folder: Path) -> bool:
    return "microsoft" in platform.release().lower() and folder.parts[:2] == ("/", "mnt")


TRIED_ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",
    "x-message-ttl": 60_000,
    "x-delivery-limit": 20,
    "x-dead-letter-exchange": "",
    "x-dead-letter-strategy": "at-least-once",
    "x-expires": 60_000,
}
"""All that the fleet's queues ask for; RabbitMQ from 3.10 on has it."""
ACCESS_REFUSED = 403


def broker_checks(url: str, namespace: str, topology: Topology, *, expected: bool) -> Iterator[Check]:
    """`expected`: a broker should answer at the URL now, because a fleet is up or the environment names it."""
    yield _check_rabbitmq()
    try:
        with open_connection(url) as connection:
            yield Check("broker", "ok", f"answers at {without_password(url)}")
            yield _tried_out(connection)
            depths = queue_depths(connection, topology, namespace)
            yield dead_letters_check(depths)
            yield unroutable_check(depths)
    except BrokerUnreachable as error:
        none = Check("broker", "ok", "none is running yet; `ratchet up` starts one")
        yield Check("broker", "fail", str(error), "ratchet up") if expected else none
    except BusError as error:
        yield Check("broker", "fail", str(error), "look into the broker's log")


def dead_letters_check(depths: Sequence[QueueDepth]) -> Check:
    if count := _waiting(depths, DEAD_LETTERS):
        return Check("dead letters", "warn", f"{count:,} could not be handled", "ratchet dead-letters list")
    return Check("dead letters", "ok", "none")


def unroutable_check(depths: Sequence[QueueDepth]) -> Check:
    if count := _waiting(depths, UNROUTABLE):
        says = f"{count:,} {'was' if count == 1 else 'were'} sent to a name that no queue has"
        return Check("unroutable", "warn", says, "ratchet dead-letters list --unroutable")
    return Check("unroutable", "ok", "none")


def _waiting(depths: Sequence[QueueDepth], queue: str) -> int:
    return sum(depth.messages or 0 for depth in depths if depth.name == queue)


def _check_rabbitmq() -> Check:
    folder = server_folder()
    if folder is None:
        return Check("rabbitmq", "warn", "not installed here", INSTALL_SENTENCE)
    return Check("rabbitmq", "ok", f"installed in {folder.parent}")


def _tried_out(connection: BlockingConnection) -> Check:
    """A message into a queue such as the fleet's and out again: an open port is no proof."""
    name = f"ratchet.doctor.{uuid.uuid4().hex}"
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=TRIED_ARGUMENTS)
        channel.basic_publish("", name, b"well?", mandatory=True)
        _, _, body = channel.basic_get(name, auto_ack=True)
        channel.queue_delete(name)
    except AMQPError as error:
        if isinstance(error, ChannelClosedByBroker) and error.reply_code == ACCESS_REFUSED:
            what = "not tried out: this user of the broker may not make queues, as it should be where they are set up"
            return Check("queues", "warn", what, "ratchet status")
        return Check("queues", "fail", f"a quorum queue can't be used ({error!r})", "use RabbitMQ 3.10 or newer")
    if body != b"well?":
        return Check("queues", "fail", "a confirmed message did not come out again", "look into the broker's log")
    return Check("queues", "ok", "a quorum queue took a message and gave it back")


def settings_checks(environment: Iterable[str]) -> Iterator[Check]:
    for sentence in unknown_names(environment):
        yield Check("settings", "warn", sentence, "correct the name, or unset it")
    try:
        require_usable()
    except SettingsError as error:
        yield Check("settings", "fail", str(error), "correct or unset what is named")


MARKS = {"ok": ("✔", "green"), "warn": ("!", "yellow"), "fail": ("✘", "red")}


def doctor(json: AsJson = False) -> None:
    checks = _examine()
    if json:
        print_json({"sound": sound(checks), "checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    if not sound(checks):
        raise typer.Exit(ExitCode.FAILED)


def _examine() -> list[Check]:
    access = FleetAccess.here()
    settings = FleetSettings.read()
    index_dir = settings.index_dir or access.logs_dir
    named = os.environ.get("RATCHET_AMQP_URL")
    is_up = access.record is not None and supervisor_process(access.record) is not None
    plan = plan_fleet(FleetOptions(), FleetFolder.here().broker, named, drain_grace_s=0)
    return [
        *settings_checks(os.environ),
        *machine_checks(access.logs_dir, index_dir, settings.adapters_dir, None if is_up else plan.ports),
        *broker_checks(access.amqp_url, access.namespace, access.topology, expected=bool(named) or is_up),
    ]


def _print(checks: list[Check]) -> None:
    for check in checks:
        mark, style = MARKS[check.level]
        out.print(Text.assemble((mark, style), f" {check.name:<13} {check.says}"))
        if check.fix:
            out.print(Text(f"  {'':<13} → {check.fix}", style="cyan"))
