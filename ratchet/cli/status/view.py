"""The status of the fleet as tables. Pure: a report in, something rich can print out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ratchet.cli.status.queue_depths import QueueDepth
from ratchet.cli.status.report import ServiceStatus, StatusReport


def render_status(report: StatusReport) -> Group:
    parts: list[RenderableType] = [_headline(report)]
    if report.services:
        parts.append(services_table(report.services))
    if report.queues:
        parts.append(queues_table(report.queues))
    parts += [Text(f"✘ {fault}", style="red") for fault in report.faults]
    if not report.started_here:
        parts.append(Text("No fleet was started here (no .ratchet/fleet.json): seen through the broker only.", "dim"))
    return Group(*parts)


def _headline(report: StatusReport) -> Text:
    health = ("healthy", "bold green") if report.healthy else ("not healthy", "bold red")
    return Text.assemble("The fleet is ", health, f" · broker {report.broker}")


def services_table(services: Sequence[ServiceStatus]) -> Table:
    table = Table("service", "pid", "state", "http", box=None, header_style="dim", pad_edge=False)
    for service in services:
        state = Text("ready", "green") if service.ready else Text(service.reason or "not ready", "red")
        table.add_row(service.name, str(service.pid or "–"), state, service.http or "")
    return table


def queues_table(queues: Sequence[QueueDepth]) -> Table:
    table = Table("queue", box=None, header_style="dim", pad_edge=False)
    table.add_column("waiting", justify="right")
    table.add_column("consumers", justify="right")
    for queue in queues:
        table.add_row(queue.name, "–" if queue.messages is None else f"{queue.messages:,}", str(queue.consumers))
    return table
