"""`ratchet status`: is everything well, and if not, what is wrong."""

from __future__ import annotations

from typing import Annotated

import typer


def status(json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show each service, the broker and the queues. Exit code 0 if all is healthy, 1 if not, 3 without a broker."""
    from ratchet.cli.fleet.folder import FleetAccess, FleetFolder
    from ratchet.cli.status.report import ask_status
    from ratchet.cli.status.view import render_status
    from ratchet.cli.terminal.console import out, print_json
    from ratchet.cli.terminal.errors import ExitCode

    report = ask_status(FleetAccess.here(), FleetFolder.here())
    if json:
        print_json(report.as_dict())
    else:
        out.print(render_status(report))
    if report.broker_fault:
        raise typer.Exit(ExitCode.BROKER_UNREACHABLE)
    if not report.healthy:
        raise typer.Exit(ExitCode.FAILED)
