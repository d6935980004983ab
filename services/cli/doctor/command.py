"""`ratchet doctor`: can a fleet run here, and what to type where it can't."""

from __future__ import annotations

import os
from dataclasses import asdict

import typer
from rich.text import Text

from ratchet.service.settings import FleetSettings
from services.cli.doctor.checks import Check, broker_checks, machine_checks, settings_checks, sound
from services.cli.fleet.folder import FleetAccess, FleetFolder
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.plan import plan_fleet
from services.cli.fleet.ports import supervisor_process
from services.cli.terminal import AsJson, ExitCode, out, print_json

MARKS = {"ok": ("✔", "green"), "warn": ("!", "yellow"), "fail": ("✘", "red")}


def doctor(json: AsJson = False) -> None:
    """Check this machine and the broker; each line says ok, warn or fail, and what to type. Exit code 1 on a fail."""
    checks = _examine()
    if json:
        print_json({"sound": sound(checks), "checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    if not sound(checks):
        raise typer.Exit(ExitCode.FAILED)


def _examine() -> list[Check]:
    access = FleetAccess.here()
    settings = FleetSettings.read()
    index_dir = settings.index_dir or access.logs_dir
    named = os.environ.get("RATCHET_AMQP_URL")
    is_up = access.record is not None and supervisor_process(access.record) is not None
    plan = plan_fleet(FleetOptions(), FleetFolder.here().broker, named, drain_grace_s=0)
    return [
        *settings_checks(os.environ),
        *machine_checks(access.logs_dir, index_dir, settings.adapters_dir, None if is_up else plan.ports),
        *broker_checks(access.amqp_url, access.namespace, access.topology, expected=bool(named) or is_up),
    ]


def _print(checks: list[Check]) -> None:
    for check in checks:
        mark, style = MARKS[check.level]
        out.print(Text.assemble((mark, style), f" {check.name:<13} {check.says}"))
        if check.fix:
            out.print(Text(f"  {'':<13} → {check.fix}", style="cyan"))
