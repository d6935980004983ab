"""`ratchet usage`: what jobs took and cost."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.fleet.api_client import FleetToken, ManagerUrl, api_client, call_api
from services.cli.terminal import AsJson, out, print_json, table


def usage(
    by: Annotated[str, typer.Option(help="One row for each: agent, job or day.")] = "day",
    json: AsJson = False,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Tasks that failed, expired or were cancelled before they were answered cost nothing."""
    with api_client("manager", url, token) as client:
        found = call_api(client, "GET", "/v1/usage", params={"by": by})
    if json:
        print_json(found)
        return
    shown = table(by, "tasks", "prompt tokens", "sampled tokens", f"spent {found['currency'] or ''}".strip())
    for row in found["items"]:
        counts = (f"{row[name]:,}" for name in ("tasks", "prompt_tokens", "sampled_tokens"))
        shown.add_row(row["key"], *counts, row["spent"])
    out.print(shown if found["items"] else "No job has used anything yet.")
