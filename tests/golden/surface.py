"""The text of what users see and nothing else generates: commands, metrics, routes with their roles, retry queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from ratchet.bus.topology import (
    BROADCAST_EXCHANGE,
    DEAD_EXCHANGE,
    EXCHANGE,
    UNROUTABLE_EXCHANGE,
    fleet_topology,
)
from ratchet.http.access.matrix import AccessRule
from ratchet.http.operation import Effect
from services.cli.app import COMMANDS, app, command
from tests.infra.exported_metrics import exported
from tests.ratchet.http.real_services import NAMES, rules_of


def help_of_commands() -> str:
    """The usage, text and parameters of every command and subcommand, as `--help` shows them without its frames."""
    whole = typer.main.get_command(app)
    context = typer.Context(whole, info_name="ratchet")
    parts = [_help(whole, context)]
    for name in COMMANDS:
        parts += _helps(command(name), typer.Context(command(name), info_name=name, parent=context))
    return "\n".join(parts)


def _helps(found: Any, context: typer.Context) -> Iterator[str]:
    yield _help(found, context)
    for name, inner in sorted(getattr(found, "commands", {}).items()):
        yield from _helps(inner, typer.Context(inner, info_name=name, parent=context))


def _help(found: Any, context: typer.Context) -> str:
    usage = " ".join([context.command_path, *found.collect_usage_pieces(context)])
    records = (parameter.get_help_record(context) for parameter in found.params)
    parameters = [f"  {'  '.join(' '.join(part.split()) for part in record if part)}" for record in records if record]
    return "\n".join([f"## {usage}", " ".join((found.help or "").split()), *parameters, ""])


def metric_names() -> str:
    """Each metric of ours as Prometheus sees it, with its labels."""
    return "".join(
        f"{' '.join([name, *sorted(labels)])}\n"
        for name, labels in sorted(exported().items())
        if name.startswith("ratchet_") and not name.endswith("_created")
    )


def routes_and_roles() -> str:
    """Each route of each service: who may call it, and whether the audit takes it as a change or as work."""
    rows = sorted((service, rule.route, _roles(rule), _effect(rule)) for service in NAMES for rule in rules_of(service))
    return "".join(f"{service} {route}: {roles}{effect}\n" for service, route, roles, effect in rows)


def _roles(rule: AccessRule) -> str:
    declared = rule.operation
    if declared.roles is None:
        return "anyone"
    return ", ".join(f"{role}:own" if role in declared.own_only else str(role) for role in sorted(declared.roles))


def _effect(rule: AccessRule) -> str:
    if rule.operation.effect is Effect.WORKS:
        return " (work)"
    return " (change)" if rule.operation.effect.changes else ""


def retry_queues() -> str:
    """The exchanges, and the retry queues with their arguments, which the AsyncAPI document leaves out."""
    exchanges = (EXCHANGE, BROADCAST_EXCHANGE, DEAD_EXCHANGE, UNROUTABLE_EXCHANGE)
    rungs = fleet_topology(("small",)).rungs
    return "".join(
        [
            *(f"exchange {name}\n" for name in exchanges),
            *(f"queue {rung.name} {dict(sorted(rung.arguments.items()))}\n" for rung in rungs),
        ]
    )


SURFACE: dict[Path, Callable[[], str]] = {
    Path(__file__).parent / name: text
    for name, text in (
        ("commands.txt", help_of_commands),
        ("metrics.txt", metric_names),
        ("access.txt", routes_and_roles),
        ("retry_queues.txt", retry_queues),
    )
}
