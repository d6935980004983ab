"""The agent's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from services.agent.engines.registry import make_engine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker
from services.errors import SettingsError
from services.rabbitmq import RabbitBus
from services.service import Wired, run


def wire() -> Wired:
    settings = AgentSettings.read()
    if settings.agent_id not in settings.agents:
        raise SettingsError(
            f"RATCHET_AGENT_ID={settings.agent_id!r} is not one of the fleet's agents "
            f"(RATCHET_AGENTS={','.join(settings.agents)}): it would wait at a queue nobody fills"
        )
    bus = RabbitBus.from_settings(settings, name=f"agent {settings.agent_id}")
    worker = AgentWorker(settings, bus, make_engine(settings))
    return Wired(worker, bus, settings, settings.agent_http_port)


if __name__ == "__main__":
    run(AgentWorker.name, wire)
