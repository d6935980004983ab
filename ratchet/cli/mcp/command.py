"""`ratchet mcp`: the fleet as tools for an MCP client, over stdin and stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def mcp(
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="Where a service is, as service=https://host:port (agent-small=…); repeatable."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="RATCHET_API_TOKEN",
            show_envvar=True,
            help="API token to call them with; as an option it can be seen in `ps`.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="RATCHET_API_TOKEN_FILE", show_envvar=True, help="File of the token, read again at each call."
        ),
    ] = None,
) -> None:
    """Serve MCP on stdin and stdout: the tools of orchestrator, agents, scorer and trainer in one server.

    It is not meant to be typed: an MCP client starts it (docs/mcp.md has what to write into its configuration). Without
    `--url` it speaks to the fleet that `ratchet up` started here, and may be started before it.
    """
    from ratchet.cli.fleet.folder import FleetFolder
    from ratchet.cli.mcp.stdio import Token, addresses_of, serve_stdio
    from ratchet.cli.terminal.errors import UsageError

    if token and token_file:
        raise UsageError("give the token or the file it is in, not both")
    serve_stdio(addresses_of(url or (), FleetFolder.here().record()), Token(token, token_file))
