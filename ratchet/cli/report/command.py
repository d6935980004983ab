"""`ratchet report`: all that was learned, on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.report.gathered import gather
from ratchet.cli.report.page import page
from ratchet.cli.terminal import CommandError, print_json
from ratchet.cli.terminal import out as console
from ratchet.files.atomic_file import replace_file
from ratchet.service.settings import FleetSettings


def report(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("report.html"),
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Show it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, too.")] = False,
) -> None:
    """Write one HTML page that opens offline: lineage, scores, training, experiments, decisions with their evidence."""
    settings, target = FleetSettings.read(), out.absolute()
    gathered = gather(FleetAccess.here().logs_dir, settings.adapters_dir, settings.agents)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{target.parent} can't be made: {error}; choose another place with --out") from error
    replace_file(target, page(gathered).encode())
    if json:
        print_json(gathered.as_dict() | {"path": str(target)})
    else:
        console.print(f"The report is in {target}", markup=False)
    if open_:
        typer.launch(target.as_uri())
