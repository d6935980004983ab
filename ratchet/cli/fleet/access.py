"""Where the fleet that the commands talk to is: the environment's word first, then what `ratchet up` recorded here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ratchet.bus.topology import Topology, fleet_topology
from ratchet.cli.fleet.folder import FleetFolder, FleetRecord
from ratchet.service.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """`record` is None where no fleet was started here; the one at `amqp_url` may still be up, elsewhere."""

    amqp_url: str
    namespace: str
    agents: tuple[str, ...]
    topology: Topology
    logs_dir: Path
    record: FleetRecord | None

    @classmethod
    def here(cls) -> FleetAccess:
        """Raises SettingsError, CommandError."""
        settings = FleetSettings.read()
        record = FleetFolder.here().record()
        recorded = record and "RATCHET_AMQP_URL" not in os.environ
        agents = record.options.agents if record and "RATCHET_AGENTS" not in os.environ else settings.agents
        return cls(
            amqp_url=record.amqp_url if record and recorded else settings.amqp_url.get_secret_value(),
            namespace=record.namespace if record and "RATCHET_NAMESPACE" not in os.environ else settings.namespace,
            agents=agents,
            topology=fleet_topology(agents, external_scorer=settings.external_scorer),
            logs_dir=record.logs_dir if record and "RATCHET_LOGS_DIR" not in os.environ else settings.logs_dir,
            record=record,
        )
