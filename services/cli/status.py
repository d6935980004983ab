"""`ratchet status`: is everything well, and if not, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ratchet.adapters.registry import RegistryStore
from ratchet.bus.amqp.short_connection import open_connection, without_password
from ratchet.bus.topology import DEAD_LETTERS, RESULTS, UNROUTABLE, Topology
from ratchet.runs.run import LEAST_GROUPS
from ratchet.service.errors import BusError, RegistryError
from ratchet.service.settings import FleetSettings
from services.cli.cascade.command import cascade_lines
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess, FleetFolder, FleetRecord
from services.cli.fleet.ports import supervisor_process
from services.cli.fleet.readiness import QueueDepth, queue_depths
from services.cli.fleet.service_http import at_a_glance, held_up, readiness
from services.cli.fleet.supervisord import ProcessState, Supervisor
from services.cli.terminal import AsJson, CommandError, ExitCode, out, print_json, table


def status(json: AsJson = False) -> None:
    """Show each service, the broker and the queues. Exit code 0 if all is healthy, 1 if not, 3 without a broker."""
    report = ask_status(FleetAccess.here(), FleetFolder.here())
    if json:
        print_json(report.as_dict())
    else:
        out.print(render_status(report))
    if report.broker_fault:
        raise typer.Exit(ExitCode.BROKER_UNREACHABLE)
    if not report.healthy:
        raise typer.Exit(ExitCode.FAILED)


FOR_PEOPLE = (RESULTS, DEAD_LETTERS, UNROUTABLE)
"""Queues that no service consumes."""
MAY_BE_AWAY = ("trainer",)
"""Services a fleet answers and scores without: missed only when something waits for them."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    name: str
    pid: int
    ready: bool
    reason: str | None
    http: str | None
    log: str


@dataclass(frozen=True, slots=True)
class ExternalStatus:
    """A program of somebody else's that the fleet sends work to: what it is to consume, and how many do."""

    name: str
    queue: str
    consumers: int


@dataclass(frozen=True, slots=True)
class QualityRow:
    """The quality of a version's answers to users, since the orchestrator's start: mean and 95 % interval by name."""

    agent_id: str
    adapter_version: str
    served: Mapping[str, float]
    single: Mapping[str, float]
    distinct: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SavedRow:
    """Answers sampled for a task of this agent, and what was saved since the orchestrator's start."""

    agent_id: str
    samples: int
    saved_samples: int
    saved_tokens: int


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """The program that answers an agent's tasks by default, and the one that is tried against it or waits to be."""

    agent_id: str
    program: str
    tried: str | None


@dataclass(frozen=True, slots=True)
class LearningRow:
    """`groups` to learn from since the last training; the fleet asks for the next at `wanted`, 0: not by number."""

    agent_id: str
    groups: int
    wanted: int


@dataclass(frozen=True, slots=True)
class HeldUpRow:
    """A candidate that waits for something else than traffic. It harms no user, so the fleet is healthy."""

    agent_id: str
    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class UnauditedRow:
    """An agent whose scores are a model's, and no auditor looks at them. It is a choice, so the fleet is healthy."""

    agent_id: str
    sentence: str


@dataclass(frozen=True, slots=True)
class StatusReport:
    """`faults` are sentences; the fleet is healthy when there is none."""

    broker: str
    broker_fault: str | None
    services: tuple[ServiceStatus, ...]
    queues: tuple[QueueDepth, ...]
    started_here: bool
    faults: tuple[str, ...]
    quality: tuple[QualityRow, ...] = ()
    saved: tuple[SavedRow, ...] = ()
    external: tuple[ExternalStatus, ...] = ()
    programs: tuple[ProgramRow, ...] = ()
    learning: tuple[LearningRow, ...] = ()
    held_up: tuple[HeldUpRow, ...] = ()
    unaudited: tuple[UnauditedRow, ...] = ()
    cascades: tuple[Mapping[str, Any], ...] = ()
    """The views that `/v1/cascades` tells."""

    @property
    def healthy(self) -> bool:
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **asdict(self)}


def ask_status(access: FleetAccess, folder: FleetFolder) -> StatusReport:
    services = _services(access.record, folder) if access.record else ()
    queues, broker_fault = _queues(access)
    faults = [f"{service.name}: {service.reason}" for service in services if not service.ready]
    external = access.record.options.external if access.record else ()
    faults += [broker_fault] if broker_fault else list(queue_faults(queues, access.topology, external))
    faults += scorer_faults(FleetSettings.read())
    url = without_password(access.amqp_url)
    glance = at_a_glance(access.record)
    faults += [glance["no_copies"]] if glance and glance.get("no_copies") else []
    learns = access.record is not None and access.record.options.has_model
    return StatusReport(
        url,
        broker_fault,
        services,
        queues,
        access.record is not None,
        tuple(faults),
        tuple(quality_rows(glance)),
        tuple(saved_rows(glance)),
        tuple(_external(queues, access.topology, external)),
        tuple(program_rows(FleetSettings.read())),
        tuple(learning_rows(glance)) if learns else (),
        tuple(HeldUpRow(agent_id, one.name, one.sentence) for agent_id, one in held_up(glance)),
        tuple(unaudited_rows(glance)),
        tuple(one["cascade"] for one in (glance["agents"] if glance else ()) if one.get("cascade")),
    )


def _external(queues: tuple[QueueDepth, ...], topology: Topology, external: Sequence[str]) -> Iterator[ExternalStatus]:
    """Yield somebody else's programs, each by the first of its queues."""
    known = [queue for queue in queues if queue.name in topology.names]
    for name in external:
        found = next((queue for queue in known if name in topology.queue(queue.name).consumers), None)
        if found is not None:
            yield ExternalStatus(name, found.name, found.consumers)


def quality_rows(glance: Any) -> Iterator[QualityRow]:
    """Yield what users are served, as the orchestrator says at `/v1/status`; nothing where it does not answer."""
    for one in glance.get("quality", ()) if glance else ():
        ends = (_ends(one[measure]) for measure in ("served", "single", "distinct"))
        yield QualityRow(one["agent_id"], one["adapter_version"], *ends)


def _ends(interval: Mapping[str, float | None] | None) -> dict[str, float]:
    ends = ((name, interval[name]) for name in ("mean", "low", "high")) if interval else ()
    return {name: value for name, value in ends if value is not None}


def saved_rows(glance: Any) -> Iterator[SavedRow]:
    """Yield the agents for which anything was saved, from the same."""
    for agent in glance["agents"] if glance else ():
        samples = agent.get("samples")
        if samples and samples["saved_samples"]:
            yield SavedRow(agent["agent_id"], samples["now"], samples["saved_samples"], samples["saved_tokens"])


def learning_rows(glance: Any) -> Iterator[LearningRow]:
    """Yield how far each agent's next training is, from the same."""
    for agent in glance["agents"] if glance else ():
        yield LearningRow(agent["agent_id"], agent["learning"]["groups"], agent["learning"]["wanted"])


def unaudited_rows(glance: Any) -> Iterator[UnauditedRow]:
    """Yield the agents that no auditor looks at, from the same; one of an earlier version says nothing of it."""
    for agent in glance["agents"] if glance else ():
        if sentence := agent.get("unaudited"):
            yield UnauditedRow(agent["agent_id"], sentence)


def scorer_faults(settings: FleetSettings) -> list[str]:
    """A sentence for each agent whose scorer has drifted."""
    try:
        agents = RegistryStore(settings.adapters_dir).read().agents
    except RegistryError as error:
        return [str(error)]
    return [
        f"{name}: the scorer has drifted, training waits since {one.distrusted.since:%Y-%m-%d %H:%M} UTC "
        f"({one.distrusted.reason}): mend the scorer, or take its scores as the measure: ratchet adapters reanchor"
        for name, one in agents.items()
        if one.distrusted
    ]


def program_rows(settings: FleetSettings) -> list[ProgramRow]:
    """Return the agents of which a program answers by default; a registry that can't be read is a fault of its own."""
    try:
        agents = RegistryStore(settings.adapters_dir).read().agents
    except RegistryError:
        return []
    every = ((name, one.programs) for name, one in agents.items())
    return [ProgramRow(name, one.primary, one.candidate or one.asked) for name, one in every if one.primary]


def queue_faults(queues: tuple[QueueDepth, ...], topology: Topology, external: Sequence[str] = ()) -> list[str]:
    """A sentence for each queue that is missing, or that a service should consume and none does.

    `external`: consumers of somebody else's make, missed only when something waits for them.
    """
    missing = [f"the broker has no queue {queue.name}" for queue in queues if queue.messages is None]
    idle = [
        f"nobody consumes {queue.name}: {', '.join(topology.queue(queue.name).consumers)} is not working"
        for queue in queues
        if queue.name in topology.names and _is_missed(queue, topology.queue(queue.name).consumers, external)
    ]
    return missing + idle


def _is_missed(queue: QueueDepth, consumers: tuple[str, ...], external: Sequence[str]) -> bool:
    if queue.name in FOR_PEOPLE or queue.messages is None or queue.consumers > 0:
        return False
    return queue.messages > 0 or not set(consumers) <= {*MAY_BE_AWAY, *external}


def _queues(access: FleetAccess) -> tuple[tuple[QueueDepth, ...], str | None]:
    try:
        with open_connection(access.amqp_url) as connection:
            return tuple(queue_depths(connection, access.topology, access.namespace)), None
    except BusError as error:
        return (), str(error)


def _services(record: FleetRecord, folder: FleetFolder) -> tuple[ServiceStatus, ...]:
    states = _states(record, folder)
    return tuple(
        _service(program.name, program.http_port, str(program.log), states.get(program.name))
        for program in record.programs
    )


def _states(record: FleetRecord, folder: FleetFolder) -> Mapping[str, ProcessState]:
    if supervisor_process(record) is None:
        return {}
    try:
        return Supervisor(folder).processes()
    except CommandError:
        return {}


def _service(name: str, port: int | None, log: str, state: ProcessState | None) -> ServiceStatus:
    http = f"http://127.0.0.1:{port}" if port else None
    if state is None or not state.alive:
        return ServiceStatus(name, 0, False, "not running: ratchet up starts it again", http, log)
    if port is None:
        return ServiceStatus(name, state.pid, True, None, http, log)
    answer = readiness(port)
    return ServiceStatus(name, state.pid, answer.ready, answer.reason, http, log)


def render_status(report: StatusReport) -> Group:
    parts: list[RenderableType] = [_headline(report)]
    if report.services:
        parts.append(services_table(report.services))
    if report.queues:
        parts.append(queues_table(report.queues))
    if report.quality:
        parts.append(quality_table(report.quality))
    parts += [
        Text(
            f"{one.agent_id}: {one.samples} answers a task; "
            f"{one.saved_samples:,} answers, {one.saved_tokens:,} tokens saved"
        )
        for one in report.saved
    ]
    parts += [
        Text(f"{one.agent_id}: program {one.program} answers" + (f", {one.tried} is tried" if one.tried else ""))
        for one in report.programs
    ]
    parts += [Text(line) for one in report.cascades for line in cascade_lines(one)]
    parts += [
        Text(
            f"{one.agent_id}: {one.groups:,} groups to learn from since the last training; `ratchet train` needs "
            f"{LEAST_GROUPS} and takes older ones too, "
            + (f"the fleet trains at {one.wanted:,}" if one.wanted else "RATCHET_TRAIN_AFTER_GROUPS is off")
        )
        for one in report.learning
    ]
    parts += [
        Text(f"{one.name} is somebody else's program: {one.consumers or 'nobody'} consuming {one.queue}")
        for one in report.external
    ]
    waits = [(one.agent_id, one.sentence) for one in report.held_up]
    unaudited = [(one.agent_id, one.sentence) for one in report.unaudited]
    parts += [Text(f"{agent_id}: {sentence}", style="yellow") for agent_id, sentence in (*waits, *unaudited)]
    parts += [Text(f"✘ {fault}", style="red") for fault in report.faults]
    if not report.started_here:
        parts.append(Text("No fleet was started here (no .ratchet/fleet.json): seen through the broker only.", "dim"))
        parts.append(Text(f"It is there? {FROM_ELSEWHERE}", "dim"))
    return Group(*parts)


def _headline(report: StatusReport) -> Text:
    health = ("healthy", "bold green") if report.healthy else ("not healthy", "bold red")
    return Text.assemble("The fleet is ", health, f" · broker {report.broker}")


def services_table(services: Sequence[ServiceStatus]) -> Table:
    shown = table("service", "pid", "state", "http", left=4)
    for column in (shown.columns[0], shown.columns[1], shown.columns[3]):
        column.no_wrap = True
    for service in services:
        state = Text("ready", "green") if service.ready else Text(service.reason or "not ready", "red")
        shown.add_row(service.name, str(service.pid or "–"), state, service.http or "")
    return shown


def queues_table(queues: Sequence[QueueDepth]) -> Table:
    shown = table("queue", "waiting", "consumers")
    for queue in queues:
        shown.add_row(queue.name, "–" if queue.messages is None else f"{queue.messages:,}", str(queue.consumers))
    return shown


def quality_table(rows: Sequence[QualityRow]) -> Table:
    shown = table("agent and version", "served", "a single answer", "distinct answers", left=1)
    for column in shown.columns[1:]:
        column.no_wrap = True
    for row in rows:
        cells = (_interval(row.served), _interval(row.single), _interval(row.distinct))
        shown.add_row(f"{row.agent_id} {row.adapter_version}", *cells)
    return shown


def _interval(ends: Mapping[str, float]) -> str:
    """The mean and its 95 % interval."""
    if "mean" not in ends:
        return "–"
    mean = f"{ends['mean']:.3f}"
    return f"{mean} [{ends['low']:.3f}, {ends['high']:.3f}]" if "low" in ends and "high" in ends else mean
