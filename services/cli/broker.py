"""`ratchet broker`: set up a broker for a fleet whose services have users of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ratchet.bus.accounts import GUEST, accounts, declare
from ratchet.bus.topology import topology_of
from ratchet.service.settings import FleetSettings
from services.cli.fleet.credentials import SECRET, hand_out, write_credentials
from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.local_broker import USERS
from services.cli.terminal import CommandError, out, say

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
    fleet = accounts(
        topology_of(settings), settings.agents, settings.namespace, runner=settings.has_runner, tenants=settings.tenants
    )
    write_credentials(out, fleet, host=host, port=port, group=group, namespace=settings.namespace)
    say(f"{out}: {', '.join(account.name for account in fleet)}")
    if given is not None and (secrets := hand_out(given, out, fleet, group=group)):
        say(f"handed out: {', '.join(secrets)}")


@broker.command()
def setup(timeout: Annotated[float, typer.Option(help="Seconds to wait for the broker.")] = 60.0) -> None:
    """Declare the fleet's queues and exchanges; what is there already stays as it is."""
    settings = FleetSettings.read()
    topology = topology_of(settings)
    asyncio.run(declare(settings.amqp_url.get_secret_value(), topology, settings.namespace, timeout))
    say(f"declared: {', '.join(settings.namespace + name for name in sorted(topology.names))}")


@broker.command()
def url(
    user: Annotated[str, typer.Option(help="client, client-TENANT, operator, scorer or agent-NAME.")] = "client",
) -> None:
    """Print the URL, with its password, by which a program of yours reaches the broker that `ratchet up` started.

    Where the API asks for tokens, its user has no more rights than such a program needs.
    """
    record = FleetFolder.here().record()
    if record is None or not record.own_broker:
        raise CommandError("no fleet with a broker of its own is up here: its URL is what you set (RATCHET_AMQP_URL)")
    if urlsplit(record.amqp_url).username == GUEST:
        out.print(record.amqp_url, markup=False, soft_wrap=True)
        return
    secret = FleetFolder.here().broker / USERS / user / SECRET
    if not secret.is_file():
        users = ", ".join(sorted(path.parent.name for path in secret.parent.parent.glob(f"*/{SECRET}")))
        raise CommandError(f"the broker has no user {user!r}: there are {users}")
    out.print(secret.read_text(), markup=False, soft_wrap=True)
