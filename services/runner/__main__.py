"""The runner's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.models.tokenization import keep_torch_out
from ratchet.programs.declared import read_programs
from ratchet.runtime.runner import Wired, run
from ratchet.service.errors import SettingsError
from services.runner.settings import RunnerSettings
from services.runner.worker import RunnerWorker


def wire() -> Wired:
    settings = RunnerSettings.read()
    programs = read_programs(settings.programs, settings.agents, settings.program_environments)
    if not programs.by_agent and settings.manager_url is None:
        raise SettingsError(
            "neither RATCHET_PROGRAMS nor RATCHET_MANAGER_URL is set: a runner needs the programs that it runs"
        )
    settings.require_agents(programs.agents)
    bus = RabbitBus.from_settings(settings, name=RunnerWorker.name)
    return Wired(RunnerWorker(settings, bus, programs), bus, settings, settings.runner_http_port)


if __name__ == "__main__":
    keep_torch_out()
    run(RunnerWorker.name, wire)
