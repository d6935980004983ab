"""`ratchet audit`: who changed what over the API, who was refused, and whether the record of it was touched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

audit = typer.Typer(
    help="The audit of the API: a line for every change and every refusal, each chained to the one before.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path | None, typer.Option("--dir", help="Folder of the audit; that of the settings (logs/audit) if not named.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@audit.command()
def verify(folder: Folder = None, json: AsJson = False) -> None:
    """Check every line of every service's audit against the one before; exit code 1 names the first that was touched.

    That the newest lines were cut off no chain can tell: compare the last sha256 with the one you noted, or with the
    line `audit-opened` of the service's log.
    """
    from ratchet.cli.audit.view import audits_in, verified
    from ratchet.cli.terminal.console import out, print_json
    from ratchet.service.settings import FleetSettings

    found = [verified(one) for one in audits_in(folder or FleetSettings.read().audit_dir)]
    if json:
        print_json(found)
        return
    for one in found:
        out.print(f"{one['audit']}: {one['lines']} lines, whole; the last has sha256 {one['sha256']}", markup=False)


@audit.command()
def show(
    count: Annotated[int, typer.Option("-n", min=1, help="So many of the newest lines.")] = 20,
    who: Annotated[str | None, typer.Option(help="Only of this caller.")] = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show the newest lines of all services, the oldest first; checked as in verify."""
    from ratchet.cli.audit.view import newest, sentence
    from ratchet.cli.terminal.console import out, print_json
    from ratchet.service.settings import FleetSettings

    lines = newest(folder or FleetSettings.read().audit_dir, count, who)
    if json:
        print_json(lines)
        return
    for line in lines:
        out.print(sentence(line), markup=False)
