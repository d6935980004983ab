"""`ratchet log`: the end of the log of answers, and what is added to it."""

from __future__ import annotations

from typing import Annotated

import typer

log = typer.Typer(help="The log of answers and scores.", no_args_is_help=True)


@log.command()
def tail(
    count: Annotated[int, typer.Option("-n", min=0, help="Samples to show.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; Ctrl-C ends it.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="The lines as they are in the log.")] = False,
) -> None:
    """Show the newest samples in the log: when, score, adapter version, question and answer."""
    from services.cli.console import out, print_raw
    from services.cli.fleet.fleet_access import FleetAccess
    from services.cli.log.log_tail import follow_rows, last_rows, render_row

    folder = FleetAccess.here().logs_dir
    rows, end = last_rows(folder, count, agent)
    try:
        for line, row in rows:
            print_raw(line) if json else out.print(render_row(row), soft_wrap=False)
        for line, row in follow_rows(folder, end, agent) if follow else ():
            print_raw(line) if json else out.print(render_row(row), soft_wrap=False)
    except KeyboardInterrupt:
        return
