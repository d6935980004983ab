"""`ratchet cancel`: end an open task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from schemas.messages.result import Result
from services.cli.fleet.api_client import Token, ask_orchestrator
from services.cli.terminal import AsJson, print_json, say


def cancel(
    task_id: Annotated[str, typer.Argument(help="The task's id, as `ratchet submit` printed it.")],
    url: Annotated[
        str | None, typer.Option(help="Where the orchestrator is; where `ratchet up` started it, if not named.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="RATCHET_API_TOKEN", show_envvar=True, help="API token, where one is needed.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="RATCHET_API_TOKEN_FILE", show_envvar=True, help="File of the token.")
    ] = None,
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
