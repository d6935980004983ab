"""A private RabbitMQ node for one machine: an ordinary child process of any user, on loopback, in its own folder.

A production broker is a cluster of its own; this file never talks to one. Starting and stopping it is the supervisor's.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from ratchet.bus.accounts import EVERYTHING, GUEST, NOTHING, SETUP, Account, definitions
from ratchet.bus.topology import CONSUMER_TIMEOUT_MS
from ratchet.files.atomic_file import replace_file
from ratchet.service.errors import BusError
from services.cli.fleet.credentials import DEFINITIONS, SECRET, write_credentials

INSTALL_SENTENCE = (
    "RabbitMQ is not installed. On Debian and Ubuntu type: sudo apt-get install -y rabbitmq-server "
    "(then, if its system service is not wanted: sudo systemctl disable --now rabbitmq-server). "
    "Or set RATCHET_AMQP_URL to a broker you have."
)
SERVER_PATTERNS = (
    "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin",
    "/opt/rabbitmq*/sbin",
    "/opt/homebrew/opt/rabbitmq/sbin",
)

USERS = "users"
"""Folder of the broker's users, each with its URL."""
WAL_BYTES = 8 * 1024 * 1024
"""The write-ahead log of all quorum queues. The node holds it in memory until it is full; RabbitMQ's own 512 MiB are
too many for one machine."""


def server_folder() -> Path | None:
    """The folder with `rabbitmq-server` itself. The wrapper on the PATH insists on a system user, so it won't do."""
    for pattern in SERVER_PATTERNS:
        found = sorted(Path("/").glob(pattern.removeprefix("/")))
        if found and (found[-1] / "rabbitmq-server").exists():
            return found[-1]
    return None


@dataclass(frozen=True)
class LocalBroker:
    """One node: three ports on loopback (AMQP, distribution, port mapper) and a folder for its data and log."""

    folder: Path
    port: int
    distribution_port: int
    mapper_port: int
    accounts: tuple[Account, ...] = ()
    """Its users, and guest may do nothing then; without any guest may do everything."""

    @property
    def url(self) -> str:
        """The URL of a user who may do everything. With accounts it is there once `prepare` was called."""
        return self.url_of(SETUP) if self.accounts else f"amqp://{GUEST}:{GUEST}@127.0.0.1:{self.port}/%2F"

    def url_of(self, user: str) -> str:
        return (self.folder / USERS / user / SECRET).read_text()

    @property
    def command(self) -> list[str]:
        """Raises BusError with what to type where RabbitMQ is not installed."""
        return [str(self.require_installed() / "rabbitmq-server")]

    def require_installed(self) -> Path:
        """The folder of its programs. Raises BusError with what to type where RabbitMQ is not installed."""
        folder = server_folder()
        if folder is None:
            raise BusError(INSTALL_SENTENCE)
        return folder

    @property
    def environment(self) -> dict[str, str]:
        """Return what the node needs to keep apart from any other node of this machine."""
        loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": f"ratchet{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
            "ERL_EPMD_PORT": str(self.mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "node.pid"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",  # its threads to no core: bound, they cost all other work here
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }

    def prepare(self) -> None:
        """Write the node's configuration. Its data, if it ran before, stays; its users' rights become those of now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        users = self.folder / USERS
        if self.accounts:
            nobody = Account(GUEST, NOTHING, NOTHING, NOTHING)
            write_credentials(users, (*self.accounts, nobody), host="127.0.0.1", port=self.port)
        elif users.exists():  # it asked for other users before
            everybody = Account(GUEST, EVERYTHING, EVERYTHING, EVERYTHING, tags=("administrator",))
            replace_file(users / DEFINITIONS, json.dumps(definitions({everybody: GUEST}, "")).encode(), mode=0o600)
        (self.folder / "enabled_plugins").write_text("[].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.loopback = 127.0.0.1:{self.port}\n"
            f"consumer_timeout = {CONSUMER_TIMEOUT_MS}\n"
            "disk_free_limit.absolute = 500MB\n"
            f"raft.wal_max_size_bytes = {WAL_BYTES}\n"
            "log.console = true\n" + (f"load_definitions = {users / DEFINITIONS}\n" if users.exists() else "")
        )

    def answers(self) -> bool:
        """Tell whether a queue can be declared: the port is open some time before."""
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # that nobody answers yet is no error
        where = pika.URLParameters(f"{self.url}?connection_attempts=1&socket_timeout=2")
        try:
            connection = pika.BlockingConnection(where)
            connection.channel().queue_declare("", exclusive=True)
            connection.close()
        except (AMQPError, OSError):
            return False
        return True
