"""Options that commands on adapters and programs share, and the service that they call."""

from __future__ import annotations

import getpass
import re
from typing import Annotated

import typer

from ratchet.adapters.operator_service import OperatorService, chosen_agents
from ratchet.adapters.registry import RegistryStore
from ratchet.service.settings import FleetSettings

Agent = Annotated[str | None, typer.Option(help="Which agent's; the fleet's first one if not named.")]
Version = Annotated[str, typer.Argument(help="As in v1.0.3; v1.0.0 is the base model.")]


def require_reason(reason: str) -> str:
    """Return what `--reason` says. Raises BadParameter where it says nothing."""
    if not (said := reason.strip()):
        raise typer.BadParameter("it is empty: say why")
    return said


Reason = Annotated[
    str, typer.Option(help="Why: it is recorded with the decision, under your name.", callback=require_reason)
]


def operator_service_here(agent_id: str | None) -> OperatorService:
    """`agent_id` None: the fleet's first agent. Raises SettingsError, NotFound."""
    settings = FleetSettings.read()
    store = RegistryStore.from_settings(settings)
    (chosen, *_) = chosen_agents(settings.agents, store.read(), agent_id)
    return OperatorService(store, chosen, settings.adapter_max_rank, operator())


def operator() -> str:
    """The name of who is logged in."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[\x00-\x1f\x7f]", "", name)[:100] or "unknown"
