"""`ratchet report`: all that was learned, on one HTML page."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import to_jsonable_python

from ratchet.files.atomic_file import replace_file
from ratchet.page.bundle import bundle, styles
from ratchet.service.settings import FleetSettings
from services.cli.fleet.folder import FleetAccess
from services.cli.report.gathered import Report, gather
from services.cli.terminal import CommandError, print_json
from services.cli.terminal import out as console


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


STYLES = ("vendor/uplot.css", "style/tokens.css", "style/parts.css", "style/figures.css", "style/report.css")
UNPRINTABLE = re.compile(r"\\u(?:202[a-e]|206[6-9])")
"""Characters that turn the direction of the text around them, as JSON writes them."""
PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def page(report: Report) -> str:
    """One HTML document that opens offline: the report's data as JSON, drawn by the web page's own parts. Pure.

    Texts come from users and models. They are data here, never markup; the policy runs our script alone, known by its
    digest, and loads nothing from elsewhere, so that not even a mistake lets a text act.
    """
    script, style = bundle("report.js"), styles(*STYLES)
    return PAGE.format(policy=_policy(script, style), style=style, data=_data(report), script=script)


def _policy(script: str, style: str) -> str:
    allowed = f"script-src {_source(script)}; style-src {_source(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _data(report: Report) -> str:
    """ASCII without `<`, so that no text ends the element it is in; what is no number is null."""
    plain = to_jsonable_python(report.data(), inf_nan_mode="null")
    return UNPRINTABLE.sub(r"\\ufffd", json.dumps(plain, allow_nan=False)).replace("<", r"\u003c")
