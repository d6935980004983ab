"""`ratchet broker`: set up a broker for a fleet whose services have users of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ratchet.bus.topology import topology_of
from ratchet.cli.broker.accounts import accounts, declare
from ratchet.cli.broker.credentials import hand_out, write_credentials
from ratchet.cli.terminal import say
from ratchet.service.settings import FleetSettings

broker = typer.Typer()


@broker.command()
def credentials(
    out: Annotated[Path, typer.Option(help="Folder to put them in, one folder for each user.")],
    host: Annotated[str, typer.Option(help="Name of the broker, as the services see it.")] = "rabbitmq",
    port: Annotated[int, typer.Option(help="Its AMQP port.")] = 5672,
    group: Annotated[int | None, typer.Option(help="Id of a group that may read the secrets.")] = None,
    given: Annotated[Path | None, typer.Option(help="Folder of further secrets, each for those it is for.")] = None,
) -> None:
    """Make the users' passwords, where they are not there yet, and the definitions that the broker loads."""
    settings = FleetSettings.read()
    fleet = accounts(topology_of(settings), settings.agents, settings.namespace, runner=settings.programs is not None)
    write_credentials(out, fleet, host=host, port=port, group=group, namespace=settings.namespace)
    say(f"{out}: {', '.join(account.name for account in fleet)}")
    if given is not None and (secrets := hand_out(given, out, fleet, group=group)):
        say(f"handed out: {', '.join(secrets)}")


@broker.command()
def setup(timeout: Annotated[float, typer.Option(help="Seconds to wait for the broker.")] = 60.0) -> None:
    """Declare the fleet's queues and exchanges; what is there already stays as it is."""
    settings = FleetSettings.read()
    asyncio.run(declare(settings, timeout))
    say(f"declared: {', '.join(settings.namespace + name for name in sorted(topology_of(settings).names))}")
