"""`ratchet cancel`: end an open task."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from schemas.messages.result import Result
from services.cli.fleet.api_client import ApiToken, ApiTokenFile, OrchestratorUrl, Token, ask_orchestrator
from services.cli.terminal import AsJson, print_json, say


def cancel(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it.")],
    url: OrchestratorUrl = None,
    token: ApiToken = None,
    token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Cancel an open task: its rollouts end, and no training learns from it.

    Exit code 1 if it has ended before.
    """
    path = f"/v1/tasks/{quote(task_id)}"
    result = Result.model_validate(ask_orchestrator("DELETE", path, url=url, token=Token(token, token_file)))
    if json:
        print_json(result.model_dump(mode="json"))
    else:
        say(f"task {task_id}: {result.reason}")
