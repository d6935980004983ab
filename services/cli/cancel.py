"""`ratchet cancel`: end an open task."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from schemas.messages.result import Result
from services.cli.fleet.api_client import ApiTokenFile, FleetToken, FleetUrl, api_client, call_api
from services.cli.terminal import AsJson, print_json, say


def cancel(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it.")],
    url: FleetUrl = None,
    token: FleetToken = None,
    token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Exit code 1 if it has ended before."""
    path = f"/v1/tasks/{quote(task_id)}"
    with api_client("orchestrator", url, token, token_file) as client:
        result = Result.model_validate(call_api(client, "DELETE", path))
    if json:
        print_json(result.model_dump(mode="json"))
    else:
        say(f"task {task_id}: {result.reason}")
