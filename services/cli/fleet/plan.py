"""Plans the processes of a fleet on one machine, with their settings and ports. Nothing is started here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.bus.accounts import Account, accounts, declare
from ratchet.bus.topology import Topology, topology_of
from ratchet.programs.declared import read_programs
from ratchet.runtime.processes import PROCESSES
from ratchet.service.prices import Prices
from ratchet.service.settings import FleetSettings
from services.cli.fleet import model_server
from services.cli.fleet.local_broker import LocalBroker
from services.cli.fleet.options import BIG_AGENT, SMALL_MAX_TOKENS, FleetOptions
from services.cli.fleet.supervisord import Program
from services.cli.terminal import UsageError

MOST_AGENTS = PROCESSES["scorer"].local_port - PROCESSES["agent"].local_port
LAST_PORT = PROCESSES["agent"].local_port + MOST_AGENTS - 1 + model_server.OFFSET
DISTRIBUTION_OFFSET = 20_000
MAPPER_OFFSET = 10_000
DRAIN_MARGIN_S = 15
BROKER_STOP_WAIT_S = 40


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """`environment` is every service's; it may hold the broker's password, so it is handed over in memory only."""

    environment: Mapping[str, str]
    given_url: str | None
    broker: LocalBroker | None
    services: tuple[Program, ...]

    @property
    def amqp_url(self) -> str:
        """The broker's URL. Of a private broker with accounts it is there once that was prepared, as are those of the
        services."""
        return self.broker.url if self.broker else self.given_url or ""

    @property
    def services_with_urls(self) -> tuple[Program, ...]:
        """Each with its own user of the broker, where that is a private one with accounts."""
        if self.broker is None or not self.broker.accounts:
            return self.services
        return tuple(
            replace(one, environment={**one.environment, "RATCHET_AMQP_URL": self.broker.url_of(_account_of(one))})
            if one.ours
            else one
            for one in self.services
        )

    @property
    def broker_program(self) -> Program | None:
        if self.broker is None:
            return None
        return Program("broker", tuple(self.broker.command), self.broker.environment, stop_wait_s=BROKER_STOP_WAIT_S)

    @property
    def stop_timeout_s(self) -> float:
        """The services stop together, the broker after them; and a margin."""
        services = max(program.stop_wait_s for program in self.services)
        return services + (BROKER_STOP_WAIT_S if self.broker else 0) + DRAIN_MARGIN_S

    @property
    def ports(self) -> dict[int, str]:
        """Each port this plan needs, and for what."""
        ports = {program.http_port: program.name for program in self.services if program.http_port}
        if self.broker:
            ports |= {
                self.broker.port: "the broker",
                self.broker.distribution_port: "the broker's control port",
                self.broker.mapper_port: "the broker's port mapper",
            }
        return ports


def plan_fleet(
    options: FleetOptions,
    broker_folder: Path,
    amqp_url: str | None,
    drain_grace_s: float,
    users: tuple[Account, ...] = (),
) -> FleetPlan:
    """With an `amqp_url` that broker is used; without, a private one, which has these `users`, if any.

    Raises UsageError for options that can't be.
    """
    _check(options)
    port = options.amqp_port
    own = LocalBroker(broker_folder, port, port + DISTRIBUTION_OFFSET, port + MAPPER_OFFSET, users)
    broker = None if amqp_url else own
    if broker is not None and users:
        reached = {"RATCHET_DECLARE_TOPOLOGY": "false"}
    else:
        reached = {"RATCHET_AMQP_URL": broker.url if broker else amqp_url or ""}
    environment = {**reached, **variables(options)}
    stop_wait_s = int(drain_grace_s) + DRAIN_MARGIN_S
    services = tuple(
        replace(program, stop_wait_s=stop_wait_s) if program.ours else program for program in _services(options)
    )
    return FleetPlan(environment, amqp_url, broker, services)


def private_users(options: FleetOptions, namespace: str) -> tuple[Account, ...]:
    """Users of least rights, for a private broker of a fleet whose API asks for tokens."""
    tenants = FleetSettings.read().tenants
    return accounts(_topology(options), options.fleet_agents, namespace, runner=options.with_runner, tenants=tenants)


def declare_queues(plan: FleetPlan, options: FleetOptions, namespace: str, timeout_s: float) -> None:
    """Declare the queues where the services may not. Raises TopologyConflict, BrokerUnreachable."""
    if plan.broker is not None and plan.broker.accounts:
        asyncio.run(declare(plan.amqp_url, _topology(options), namespace, timeout_s))


def _topology(options: FleetOptions) -> Topology:
    given = {"agents": options.fleet_agents, "external_scorer": options.no_scorer, "auditor": options.auditor}
    given |= {"programs": options.programs} if options.programs else {}
    given |= {"manager_url": _manager_url(options)} if options.manager else {}
    return topology_of(FleetSettings.read(**given))


def _manager_url(options: FleetOptions) -> str:
    return f"http://127.0.0.1:{options.port_base + PROCESSES['manager'].local_port}"


def _account_of(program: Program) -> str:
    agent_id = program.environment.get("RATCHET_AGENT_ID")
    return program.name if agent_id is None else f"agent-{agent_id}"


def variables(options: FleetOptions) -> dict[str, str]:
    """Return what the options say, and what suits them and this environment does not say, as settings of every
    service."""
    told = {
        "RATCHET_AGENTS": ",".join(options.fleet_agents),
        "RATCHET_AGENT_ENGINE": options.engine,
        "RATCHET_AGENT_MODEL": options.model,
        "RATCHET_SCORER": options.scorer,
        "RATCHET_SCORER_LIKELIHOOD_MODEL": options.judge_model,
        "RATCHET_AUDITOR": options.auditor,
        "RATCHET_EXTERNAL_SCORER": str(options.no_scorer).lower(),
    }
    told |= {"RATCHET_MANAGER_URL": _manager_url(options)} if options.manager else {}
    told |= {"RATCHET_PROGRAMS": str(Path(options.programs).absolute())} if options.programs else {}
    if options.big and "RATCHET_CASCADE" not in os.environ:
        told["RATCHET_CASCADE"] = f"{options.agents[0]}={BIG_AGENT}"
    if options.answers_with_small_model and "RATCHET_MAX_TOKENS" not in os.environ:
        told["RATCHET_MAX_TOKENS"] = str(SMALL_MAX_TOKENS)
    return told


def _check(options: FleetOptions) -> None:
    if options.replicas < 1:
        raise UsageError("--replicas must be 1 or more")
    if not options.fleet_agents:
        raise UsageError("--agents or --external-agents must name at least one agent")
    if options.programs:
        _check_programs(options)
    if options.with_runner:
        _check_profiles()
    if options.own_vllm and options.big and not options.big_has_url:
        raise UsageError("with --engine vllm the bigger model must run elsewhere: name its URL with --big")
    if options.agent_processes > MOST_AGENTS:
        raise UsageError(f"{options.agent_processes} agent processes are more than the {MOST_AGENTS} ports for them")
    if not 1024 <= options.port_base <= 65_535 - LAST_PORT:
        raise UsageError(f"--port-base must be between 1024 and {65_535 - LAST_PORT}")
    if not 1024 <= options.amqp_port <= 65_535 - DISTRIBUTION_OFFSET:
        raise UsageError(f"--amqp-port must be between 1024 and {65_535 - DISTRIBUTION_OFFSET}")


def _check_programs(options: FleetOptions) -> None:
    """Raises SettingsError for a file that can't be used, UsageError for an agent whose model is somebody else's."""
    environments = FleetSettings.read().program_environments
    with_programs = read_programs(Path(options.programs), options.fleet_agents, environments).by_agent
    if foreign := sorted(set(with_programs) - set(options.agents)):
        raise UsageError(f"agent {foreign[0]} has programs, but no process here would serve it its model")


def _check_profiles() -> None:
    """Raises SettingsError for a file of profiles that can't be used."""
    if file := os.environ.get("RATCHET_PROFILES"):
        from ratchet.rollouts.profiles import read_profiles  # its HTTP client takes time to import

        prices = FleetSettings.read().prices
        read_profiles(Path(file), os.environ, Prices.read(prices).agents if prices else ())


def _services(options: FleetOptions) -> list[Program]:
    names = [(agent, replica) for agent in options.own_agents for replica in range(options.replicas)]
    agents = [
        _service(
            "agent",
            options,
            {"RATCHET_AGENT_ID": agent, **(_big_environment(options) if agent == BIG_AGENT else {})},
            name=f"agent-{agent}" if options.replicas == 1 else f"agent-{agent}-{replica + 1}",
            position=position,
        )
        for position, (agent, replica) in enumerate(names)
    ]
    with_server = [one for one in agents if one.environment["RATCHET_AGENT_ID"] in options.agents and options.own_vllm]
    servers = [model_server.beside(agent, options) for agent in with_server]
    agents = [
        replace(one, environment={**one.environment, **model_server.told_to(one, options)})
        if one in with_server
        else one
        for one in agents
    ]
    # What a server elsewhere calls its model need not be a folder or a hub name, so there the environment says it.
    is_named = options.engine == "transformers" or options.own_vllm
    model = ",".join(f"{agent}={options.model}" for agent in options.agents) if options.big else options.model
    trained = {"RATCHET_TRAINER_MODEL": model} if is_named else {}
    return [
        *servers,
        _service("orchestrator", options, {}),
        *agents,
        *([] if options.no_scorer else [_service("scorer", options, {})]),
        *([_service("auditor", options, {"RATCHET_SCORER_AUDITS": "true"})] if options.auditor else []),
        *([_service("runner", options, _runner_addresses(options, agents))] if options.with_runner else []),
        *([_service("trainer", options, trained)] if options.with_trainer else []),
        *([_service("manager", options, {})] if options.manager else []),
    ]


def _big_environment(options: FleetOptions) -> dict[str, str]:
    """Return the settings of the agent of the bigger model."""
    if not options.big:
        return {}
    if options.big_has_url:
        return {"RATCHET_AGENT_ENGINE": "openai", "RATCHET_BIG_MODEL": options.big}
    return {"RATCHET_AGENT_ENGINE": "transformers", "RATCHET_AGENT_MODEL": options.big}


def _runner_addresses(options: FleetOptions, agents: Sequence[Program]) -> dict[str, str]:
    """Return the settings that tell a runner where each replica of each agent is, and the scorer."""
    where: dict[str, list[str]] = {}
    for program in agents:
        where.setdefault(program.environment["RATCHET_AGENT_ID"], []).append(f"http://127.0.0.1:{program.http_port}")
    addresses = {"RATCHET_RUNNER_AGENTS": ",".join(f"{agent}={' '.join(urls)}" for agent, urls in where.items())}
    if not options.no_scorer:
        port = options.port_base + PROCESSES["scorer"].local_port
        addresses["RATCHET_RUNNER_SCORER_URL"] = f"http://127.0.0.1:{port}"
    return addresses


def _service(
    declared: str, options: FleetOptions, environment: Mapping[str, str], *, name: str | None = None, position: int = 0
) -> Program:
    """Return a process of the table; `position` counts its replicas."""
    process = PROCESSES[declared]
    port = options.port_base + process.local_port + position
    return Program(
        name or declared,
        (sys.executable, "-m", f"services.{process.module}"),
        {f"RATCHET_{process.module.upper()}_HTTP_PORT": str(port), **environment},
        port,
    )
