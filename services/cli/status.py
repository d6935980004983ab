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
from services.cli.cascade import cascade_lines
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess, FleetFolder, FleetRecord
from services.cli.fleet.ports import supervisor_process
from services.cli.fleet.readiness import QueueDepth, queue_depths
from services.cli.fleet.service_http import at_a_glance, held_up, readiness
from services.cli.fleet.supervisord import ProcessState, Supervisor
from services.cli.terminal import AsJson, CommandError, ExitCode, out, print_json, table


def status(json: AsJson = False) -> None:
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


Rows = tuple[Mapping[str, Any], ...]
"""Each as --json shows it."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """`faults` are sentences; the fleet is healthy when there is none. A held-up candidate and an agent without an
    auditor are none: the one harms no user, the other is a choice.
    """

    broker: str
    broker_fault: str | None
    services: tuple[ServiceStatus, ...]
    queues: tuple[QueueDepth, ...]
    started_here: bool
    faults: tuple[str, ...]
    quality: Rows = ()
    """Means and 95 % intervals of the answers to users, by version and measure."""
    saved: Rows = ()
    external: tuple[ExternalStatus, ...] = ()
    programs: Rows = ()
    """The program that answers an agent's tasks by default, and the one that is tried against it or waits to be."""
    learning: Rows = ()
    """`groups` since the last training; the fleet asks for the next at `wanted`, 0: not by number."""
    held_up: Rows = ()
    unaudited: Rows = ()
    cascades: Rows = ()
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
    glance = at_a_glance(access.record)
    faults += [glance["no_copies"]] if glance and glance.get("no_copies") else []
    learns = access.record is not None and access.record.options.has_model
    return StatusReport(
        without_password(access.amqp_url),
        broker_fault,
        services,
        queues,
        access.record is not None,
        tuple(faults),
        external=tuple(_external(queues, access.topology, external)),
        programs=tuple(program_rows(FleetSettings.read())),
        **rows_of(glance, learns=learns),
    )


def _external(queues: tuple[QueueDepth, ...], topology: Topology, external: Sequence[str]) -> Iterator[ExternalStatus]:
    """Yield somebody else's programs, each by the first of its queues."""
    known = [queue for queue in queues if queue.name in topology.names]
    for name in external:
        found = next((queue for queue in known if name in topology.queue(queue.name).consumers), None)
        if found is not None:
            yield ExternalStatus(name, found.name, found.consumers)


def rows_of(glance: Any, *, learns: bool = True) -> dict[str, Rows]:
    """Return the parts of the report that the orchestrator tells at `/v1/status`; none where it does not answer.

    An orchestrator of an earlier version says nothing of some.
    """
    if glance is None:
        return {}
    agents, measures = glance["agents"], ("served", "single", "distinct")
    saved, learning = ("saved_samples", "saved_tokens"), ("groups", "wanted")
    return {
        "quality": tuple(
            {"agent_id": one["agent_id"], "adapter_version": one["adapter_version"]}
            | {measure: _ends(one[measure]) for measure in measures}
            for one in glance.get("quality", ())
        ),
        "saved": tuple(
            {"agent_id": one["agent_id"], "samples": samples["now"]} | {name: samples[name] for name in saved}
            for one in agents
            if (samples := one.get("samples")) and samples["saved_samples"]
        ),
        "learning": tuple(
            {"agent_id": one["agent_id"]} | {name: one["learning"][name] for name in learning}
            for one in (agents if learns else ())
        ),
        "held_up": tuple(
            {"agent_id": agent_id, "name": one.name, "sentence": one.sentence} for agent_id, one in held_up(glance)
        ),
        "unaudited": tuple(
            {"agent_id": one["agent_id"], "sentence": sentence} for one in agents if (sentence := one.get("unaudited"))
        ),
        "cascades": tuple(view for one in agents if (view := one.get("cascade"))),
    }


def _ends(interval: Mapping[str, float | None] | None) -> dict[str, float]:
    ends = ((name, interval[name]) for name in ("mean", "low", "high")) if interval else ()
    return {name: value for name, value in ends if value is not None}


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


def program_rows(settings: FleetSettings) -> list[Mapping[str, Any]]:
    """Return the agents of which a program answers by default; a registry that can't be read is a fault of its own."""
    try:
        agents = RegistryStore(settings.adapters_dir).read().agents
    except RegistryError:
        return []
    every = ((name, one.programs) for name, one in agents.items())
    return [
        {"agent_id": name, "program": one.primary, "tried": one.candidate or one.asked}
        for name, one in every
        if one.primary
    ]


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
    try:
        states = Supervisor(folder).processes() if supervisor_process(record) else {}
    except CommandError:
        states = {}
    return tuple(
        _service(program.name, program.http_port, str(program.log), states.get(program.name))
        for program in record.programs
    )


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
    lines = [
        f"{one['agent_id']}: {one['samples']} answers a task; "
        f"{one['saved_samples']:,} answers, {one['saved_tokens']:,} tokens saved"
        for one in report.saved
    ]
    lines += [
        f"{one['agent_id']}: program {one['program']} answers" + (f", {one['tried']} is tried" if one["tried"] else "")
        for one in report.programs
    ]
    lines += [line for one in report.cascades for line in cascade_lines(one)]
    lines += [
        f"{one['agent_id']}: {one['groups']:,} groups to learn from since the last training; `ratchet train` needs "
        f"{LEAST_GROUPS} and takes older ones too, "
        + (f"the fleet trains at {one['wanted']:,}" if one["wanted"] else "RATCHET_TRAIN_AFTER_GROUPS is off")
        for one in report.learning
    ]
    lines += [
        f"{one.name} is somebody else's program: {one.consumers or 'nobody'} consuming {one.queue}"
        for one in report.external
    ]
    parts += map(Text, lines)
    warnings = (*report.held_up, *report.unaudited)
    parts += [Text(f"{one['agent_id']}: {one['sentence']}", style="yellow") for one in warnings]
    parts += [Text(f"✘ {fault}", style="red") for fault in report.faults]
    if not report.started_here:
        parts.append(Text("No fleet was started here (no .ratchet/fleet.json): seen through the broker only.", "dim"))
        parts.append(Text(f"It is there? {FROM_ELSEWHERE}", "dim"))
    return Group(*parts)


def _headline(report: StatusReport) -> Text:
    health = ("healthy", "bold green") if report.healthy else ("not healthy", "bold red")
    return Text.assemble("The fleet is ", health, f" · broker {report.broker}")


def services_table(services: Sequence[ServiceStatus]) -> Table:
    shown = table("service", "pid", "state", "http", left=4, wraps=("state",))
    for service in services:
        state = Text("ready", "green") if service.ready else Text(service.reason or "not ready", "red")
        shown.add_row(service.name, str(service.pid or "–"), state, service.http or "")
    return shown


def queues_table(queues: Sequence[QueueDepth]) -> Table:
    shown = table("queue", "waiting", "consumers")
    for queue in queues:
        shown.add_row(queue.name, "–" if queue.messages is None else f"{queue.messages:,}", str(queue.consumers))
    return shown


def quality_table(rows: Rows) -> Table:
    shown = table("agent and version", "served", "a single answer", "distinct answers", wraps=("agent and version",))
    for row in rows:
        cells = (_interval(row[measure]) for measure in ("served", "single", "distinct"))
        shown.add_row(f"{row['agent_id']} {row['adapter_version']}", *cells)
    return shown


def _interval(ends: Mapping[str, float]) -> str:
    """The mean and its 95 % interval."""
    if "mean" not in ends:
        return "–"
    mean = f"{ends['mean']:.3f}"
    return f"{mean} [{ends['low']:.3f}, {ends['high']:.3f}]" if "low" in ends and "high" in ends else mean
