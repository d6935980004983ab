"""`ratchet cascade`: the share that a small model answers in place of a big one, what it saves, and the proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ratchet.adapters.registry import RegistryStore
from ratchet.service.settings import FleetSettings
from services.cli.cascade.replay import replayed_moves
from services.cli.cascade.view import cascade_lines
from services.cli.fleet.api_client import FleetToken, FleetUrl, api_client, call_api
from services.cli.terminal import AsJson, ExitCode, out, print_json, print_raw

cascade = typer.Typer()

Agent = Annotated[str, typer.Argument(help="The agent in whose place a big model answers.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the decision.")]
NONE = "No cascade. RATCHET_CASCADE=small=big begins one: docs/cascade.md"


@cascade.command()
def show(json: AsJson = False, url: FleetUrl = None, token: FleetToken = None) -> None:
    """Show who answers how much, what that costs and saves, and the evidence for the next step."""
    with api_client("orchestrator", url, token) as client:
        found = call_api(client, "GET", "/v1/cascades")["items"]
    if json:
        print_json(found)
        return
    for one in found:
        _print(one)
    if not found:
        out.print(NONE)


@cascade.command()
def freeze(agent: Agent, reason: Reason, json: AsJson = False, url: FleetUrl = None, token: FleetToken = None) -> None:
    """Stop the small model's share from rising; where it is proved to do harm it still falls."""
    _post(agent, "freeze", {"reason": reason}, json, url, token)


@cascade.command()
def unfreeze(
    agent: Agent, reason: Reason, json: AsJson = False, url: FleetUrl = None, token: FleetToken = None
) -> None:
    """Let the small model's share rise again by proof."""
    _post(agent, "unfreeze", {"reason": reason}, json, url, token)


@cascade.command("set")
def set_(
    agent: Agent,
    share: Annotated[float, typer.Argument(help="0, 0.1, 0.2, 0.4, 0.8 or 1.")],
    reason: Reason,
    json: AsJson = False,
    url: FleetUrl = None,
    token: FleetToken = None,
) -> None:
    """Set the small model's share by hand, without a proof; the evidence begins anew."""
    _post(agent, "share", {"share": share, "reason": reason}, json, url, token)


@cascade.command()
def replay(
    agent: Annotated[str | None, typer.Argument(help="Only this agent's.")] = None, json: AsJson = False
) -> None:
    """Make each move of a share again from the logs of this folder. Exit code 1 if one comes out otherwise."""
    settings = FleetSettings.read()
    found = list(replayed_moves(RegistryStore(settings.adapters_dir).ledger, settings.logs_dir, agent))
    if json:
        print_json([asdict(one) for one in found])
    for one in () if json else found:
        print_raw(one.sentence)
    if not found and not json:
        out.print("No share was moved by proof.")
    if not all(one.holds for one in found):
        raise typer.Exit(ExitCode.FAILED)


def _post(agent: str, what: str, body: Mapping[str, Any], json: bool, url: str | None, token: str | None) -> None:
    with api_client("orchestrator", url, token) as client:
        view = call_api(client, "POST", f"/v1/cascades/{agent}/{what}", json=body)
    if json:
        print_json(view)
    else:
        _print(view)


def _print(view: Mapping[str, Any]) -> None:
    for line in cascade_lines(view):
        print_raw(line)
