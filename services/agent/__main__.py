"""The agent's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.runtime.runner import Wired, run
from ratchet.service.errors import SettingsError
from services.agent.engines.installed import make_engine
from services.agent.settings import AgentSettings
from services.agent.worker import AgentWorker


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
