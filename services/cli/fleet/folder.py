"""The folder `.ratchet/`: what `ratchet up` leaves for other commands to find, and how they reach the fleet with it.

Nothing in it is needed to restart. It may be moved with RATCHET_STATE_DIR, which also lets several fleets run on one
machine. Where the fleet is: the environment's word first, then what was recorded here.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ratchet.bus.topology import Topology, fleet_topology
from ratchet.client import Fleet
from ratchet.files.atomic_file import replace_file
from ratchet.service.settings import FleetSettings
from services.cli.fleet.options import FleetOptions
from services.cli.terminal import CommandError

LONGEST_SOCKET_PATH = 100
FROM_ELSEWHERE = "from another folder than the fleet's, read its settings into the shell: . FOLDER/.ratchet/env"
"""The command to type where no fleet is found, as the end of a sentence."""


class StartedProgram(BaseModel):
    """A process as it was planned; its pid is asked of the supervisor, because a restart changes it."""

    model_config = ConfigDict(frozen=True)

    name: str
    http_port: int | None
    log: Path


class FleetRecord(BaseModel):
    """The fleet that `ratchet up` started. `supervisor_started` (seconds since the epoch) tells its pid from a reused
    one.

    `stop_timeout_s` is how long it may take to stop everything, with every grace time used up.
    """

    model_config = ConfigDict(frozen=True)

    supervisor_pid: int
    supervisor_started: float
    stop_timeout_s: float
    amqp_url: str
    namespace: str
    own_broker: bool
    logs_dir: Path
    options: FleetOptions
    programs: tuple[StartedProgram, ...]

    def port_of(self, name: str) -> int | None:
        """Return the port on which the program of that name serves HTTP; None where there is none, or it does not."""
        return next((program.http_port for program in self.programs if program.name == name), None)


@dataclass(frozen=True, slots=True)
class FleetFolder:
    root: Path

    @classmethod
    def here(cls) -> FleetFolder:
        return cls(Path(os.environ.get("RATCHET_STATE_DIR", ".ratchet")).absolute())

    @property
    def record_file(self) -> Path:
        return self.root / "fleet.json"

    @property
    def settings_file(self) -> Path:
        """The file for a shell to read: after it every `ratchet` command, in whichever folder, looks at this fleet."""
        return self.root / "env"

    @property
    def supervisor_config(self) -> Path:
        return self.root / "supervisord.conf"

    @property
    def process_logs(self) -> Path:
        return self.root / "log"

    @property
    def broker(self) -> Path:
        return self.root / "rabbitmq"

    @property
    def socket(self) -> Path:
        """The socket in the folder, or, where its path would be too long for a Unix socket, in the system's temporary
        folder."""
        inside = self.root / "supervisor.sock"
        if len(str(inside)) <= LONGEST_SOCKET_PATH:
            return inside
        return Path(tempfile.gettempdir()) / f"ratchet-{hashlib.sha256(str(self.root).encode()).hexdigest()[:16]}.sock"

    def record(self) -> FleetRecord | None:
        """Return what was started last; None where nothing was, or it was stopped. Raises CommandError on a broken
        file."""
        try:
            return FleetRecord.model_validate_json(self.record_file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise CommandError(
                f"{self.record_file} can't be read: stop the fleet by its pids, then delete the file"
            ) from None

    def write_record(self, record: FleetRecord) -> None:
        write_private(self.record_file, record.model_dump_json(indent=2) + "\n")

    def write_settings(self, settings: FleetSettings) -> None:
        """Write what says where the fleet is; it stays when the fleet is stopped, as its logs do."""
        told = {
            "RATCHET_STATE_DIR": self.root,
            "RATCHET_LOGS_DIR": settings.logs_dir,
            "RATCHET_INDEX_DIR": settings.index_dir,
            "RATCHET_ADAPTERS_DIR": settings.adapters_dir,
            "RATCHET_MODELS_DIR": settings.models_dir,
            "RATCHET_DECISION_KEYS": settings.decision_keys,
            "RATCHET_PROGRAM_ENVIRONMENTS": settings.program_environments,
        }
        paths = {name: str(path.absolute()) for name, path in told.items() if path is not None}
        write_settings(self.settings_file, {**paths, "RATCHET_NAMESPACE": settings.namespace})


def write_private(file: Path, text: str) -> None:
    """Write it for this user only: an AMQP URL has a password in it."""
    replace_file(file, text.encode(), mode=0o600)


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    """Write them as lines that a shell reads."""
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    replace_file(file, "".join(lines).encode())


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """`record` is None where no fleet was started here; the one at `amqp_url` may still be up, elsewhere."""

    amqp_url: str
    namespace: str
    agents: tuple[str, ...]
    topology: Topology
    logs_dir: Path
    record: FleetRecord | None
    programs: Path | None = None
    """The file of programs."""

    @classmethod
    def here(cls) -> FleetAccess:
        """Raises SettingsError, CommandError."""
        settings = FleetSettings.read()
        record = FleetFolder.here().record()
        recorded = record and "RATCHET_AMQP_URL" not in os.environ
        agents = record.options.fleet_agents if record and "RATCHET_AGENTS" not in os.environ else settings.agents
        return cls(
            amqp_url=record.amqp_url if record and recorded else settings.amqp_url.get_secret_value(),
            namespace=record.namespace if record and "RATCHET_NAMESPACE" not in os.environ else settings.namespace,
            agents=agents,
            topology=fleet_topology(
                agents,
                external_scorer=settings.external_scorer or bool(record and record.options.no_scorer),
                auditor=bool(record.options.auditor if record else settings.auditor),
                manager=bool(record.options.manager if record else settings.manager_url),
                programs=bool(record.options.programs or record.options.manager) if record else settings.has_runner,
            ),
            logs_dir=record.logs_dir if record and "RATCHET_LOGS_DIR" not in os.environ else settings.logs_dir,
            record=record,
            programs=settings.programs
            or (Path(record.options.programs) if record and record.options.programs else None),
        )

    def client(self, **options: Any) -> Fleet:
        """Return a client of the fleet, with these options."""
        return Fleet(self.amqp_url, namespace=self.namespace, **options)
