"""The manager's front door: read the settings, wire, run until SIGTERM."""

from __future__ import annotations

from ratchet.client import AsyncFleet
from ratchet.runtime.runner import NoBus, Wired, run
from services.manager.database import Database
from services.manager.settings import ManagerSettings
from services.manager.worker import ManagerWorker


def wire() -> Wired:
    settings = ManagerSettings.read()

    def connect() -> AsyncFleet:
        return AsyncFleet(settings.amqp_url.get_secret_value(), namespace=settings.namespace, most_open=MOST_OPEN)

    worker = ManagerWorker(settings, Database(settings.manager_db.get_secret_value()), connect)
    # It consumes no queue: the client has its own connection.
    return Wired(worker, NoBus(), settings, settings.manager_http_port)


MOST_OPEN = 1_000_000
"""Its own window bounds what is open."""

if __name__ == "__main__":
    run(ManagerWorker.name, wire)
