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
    from ratchet.cli.fleet.folder import FleetAccess
    from ratchet.cli.log.tail import follow_rows, last_rows, nothing_to_show, render_row
    from ratchet.cli.terminal.console import out, print_raw, say

    folder = FleetAccess.here().logs_dir
    rows, end = last_rows(folder, count, agent)
    if count and not rows:
        say(nothing_to_show(folder, agent))
    try:
        for line, row in rows:
            print_raw(line) if json else out.print(render_row(row), soft_wrap=False)
        for line, row in follow_rows(folder, end, agent) if follow else ():
            print_raw(line) if json else out.print(render_row(row), soft_wrap=False)
    except KeyboardInterrupt:
        return


@log.command()
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go, and what keeps the rest.")
    ] = False,
    keep_gb: Annotated[
        float | None, typer.Option(min=0, help="Room for both; RATCHET_LOG_KEEP_GB if not named.")
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option(min=0, help="Before the newest line; RATCHET_LOG_KEEP_DAYS if not named.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Remove the oldest sealed segments of the logs that are over their bound, with the fleet down.

    A running orchestrator does this by itself. What an open task, a running experiment or a training needs stays. The
    tasks removed are remembered by the sums of their ids, so that none of them is run again.
    """
    from ratchet.cli.fleet.folder import FleetAccess
    from ratchet.cli.log.prune import as_dict, sentences
    from ratchet.cli.log.prune import prune as pruned_here
    from ratchet.cli.terminal.console import out, print_json
    from ratchet.logs.retention.plan import Bound
    from ratchet.service.settings import FleetSettings

    settings = FleetSettings.read()
    bound = Bound.of(
        settings.log_keep_gb if keep_gb is None else keep_gb,
        settings.log_keep_days if keep_days is None else keep_days,
    )
    logs_dir = FleetAccess.here().logs_dir
    pruned = pruned_here(logs_dir, settings.index_dir or logs_dir, settings.adapters_dir, bound, dry=dry_run)
    if json:
        print_json(as_dict(pruned, dry=dry_run))
        return
    for sentence in sentences(pruned, dry=dry_run):
        out.print(sentence, markup=False)
