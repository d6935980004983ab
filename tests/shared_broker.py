"""One RabbitMQ node for all processes that run the tests side by side, with a virtual host for each of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote

from ratchet.bus.accounts import EVERYTHING, GUEST, Account, definitions
from services.cli.fleet.credentials import DEFINITIONS
from services.cli.fleet.local_broker import USERS
from tests.private_broker import PrivateBroker


@dataclass(frozen=True)
class SharedBroker(PrivateBroker):
    """`hosts`: names of the virtual hosts, in each of which guest may do everything."""

    hosts: tuple[str, ...] = ()

    def prepare(self) -> None:
        super().prepare()
        guest = Account(GUEST, EVERYTHING, EVERYTHING, EVERYTHING, tags=("administrator",))
        defined = definitions({guest: GUEST}, "")
        (allowed,) = defined["permissions"]
        defined["vhosts"] += [{"name": host} for host in self.hosts]
        defined["permissions"] += [allowed | {"vhost": host} for host in self.hosts]
        path = self.folder / USERS / DEFINITIONS
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(defined))
        with (self.folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"load_definitions = {path}\n")

    def url_in(self, host: str) -> str:
        return f"amqp://{GUEST}:{GUEST}@127.0.0.1:{self.port}/{quote(host, safe='')}"
