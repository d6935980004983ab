"""RabbitMQ: a StatefulSet whose nodes find each other by their ordinals, and whose users are made with it.

Passwords are random, kept in the stack's encrypted state, and known to the broker as salted hashes only. The queues are
not declared here: a job of the fleet's own does that, from the table in ratchet/bus, as are the rights of each user.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

import pulumi
from pulumi_random import RandomPassword

from infra import probes
from infra.network import AMQP, BROKER_METRICS, CLUSTERING, EPMD, MANAGEMENT
from infra.process import Files, Kind, Mount, OwnDisk, Port, Process, Program, Role, Scale, Scratch
from infra.settings import StackSettings, of_shard
from ratchet.bus.accounts import NOTHING, Account, accounts, definitions
from ratchet.bus.topology import CONSUMER_TIMEOUT_MS, fleet_topology

NAME = "rabbitmq"
RABBITMQ_USER = 999
"""The user in the official image."""
HOME = "/var/lib/rabbitmq"
DRAIN_S = 600
"""A node waits until the others could do without it: quorum queues that lag behind catch up first."""
DISK_RESERVE = "1GB"
"""The free disk below which a node takes no messages."""
CLIENT, OPERATOR, SCALER, SCORER, SETUP = "client", "operator", "keda", "scorer", "setup"
"""Users of the broker that are told to somebody by name."""


class Accounts:
    """A password for each user, and the URLs made of them."""

    def __init__(self, settings: StackSettings, namespace: pulumi.Output[str], shard: str = "") -> None:
        """`shard` ends the names of the passwords of one of several fleets."""
        self._users = users(settings, scaler=not shard)
        self._prefix = settings.queue_namespace
        keepers = {"rotation": settings.broker.rotation}
        self._passwords = {
            user.name: RandomPassword(f"broker-{user.name}{shard}", length=32, special=False, keepers=keepers).result
            for user in self._users
        }
        self._host = pulumi.Output.concat(NAME, ".", namespace, ".svc.cluster.local")
        numbers = range(1, 1 if shard else settings.shards)
        self._shards = {number: Accounts(of_shard(settings, number), namespace, f"-{number}") for number in numbers}

    @cached_property
    def cookie(self) -> pulumi.Output[str]:
        return RandomPassword("broker-cookie", length=48, special=False).result

    def of_shard(self, number: int) -> Accounts:
        return self._shards[number]

    def password(self, user: str) -> pulumi.Output[str]:
        return pulumi.Output.secret(self._passwords[user])

    def amqp_url(self, user: str) -> pulumi.Output[str]:
        return self._url("amqp", user, AMQP)

    def management_url(self, user: str) -> pulumi.Output[str]:
        return self._url("http", user, MANAGEMENT)

    def _url(self, scheme: str, user: str, port: int) -> pulumi.Output[str]:
        named = f"{scheme}://{self._prefix}{user}:"
        return pulumi.Output.concat(named, self.password(user), "@", self._host, f":{port}/")

    def definitions(self) -> pulumi.Output[str]:
        """Return the users and permissions that the broker imports at each start: a new password takes a restart."""
        everybody = self._users
        passwords = pulumi.Output.all(*(self.password(user.name) for user in everybody))
        own = passwords.apply(
            lambda given: json.dumps(definitions(dict(zip(everybody, given, strict=True)), self._prefix), indent=1)
        )
        return pulumi.Output.all(own, *(one.definitions() for one in self._shards.values())).apply(together)


def users(settings: StackSettings, *, scaler: bool = True) -> tuple[Account, ...]:
    """Return the users of the fleet's own table, and one for KEDA, which only sees the depths of queues."""
    agents = tuple(agent.id for agent in settings.agents)
    queues = fleet_topology(
        agents,
        external_scorer=settings.external_scorer,
        auditor=settings.auditor is not None,
        programs=settings.runner is not None or settings.manager is not None,
        manager=settings.manager is not None,
    )
    keda = (Account(SCALER, NOTHING, NOTHING, NOTHING, tags=("monitoring",)),) if scaler else ()
    has_runner = settings.runner is not None or settings.manager is not None
    return (*accounts(queues, agents, settings.queue_namespace, runner=has_runner), *keda)


def together(documents: Sequence[str]) -> str:
    """Join the definitions of several fleets, which share the virtual host."""
    first, *others = (json.loads(document) for document in documents)
    for other in others:
        for part in ("users", "permissions", "topic_permissions"):
            first[part] += other[part]
    return json.dumps(first, indent=1)


def rabbitmq(settings: StackSettings, accounts: Accounts) -> Process:
    broker = settings.broker
    node = f"rabbit@$(POD_NAME).{NAME}-nodes.$(POD_NAMESPACE).svc.cluster.local"
    return Process(
        name=NAME,
        role=Role.BROKER,
        kind=Kind.CLUSTER,
        main=Program(
            name=NAME,
            image=settings.images.rabbitmq,
            resources=broker.resources,
            ports=(
                Port("amqp", AMQP),
                Port("management", MANAGEMENT),
                Port("metrics", BROKER_METRICS),
                Port("epmd", EPMD),
                Port("clustering", CLUSTERING),
            ),
            environment={"HOME": HOME, "RABBITMQ_USE_LONGNAME": "true", "RABBITMQ_NODENAME": node},
            mounts=(
                Mount(Scratch("home", "64Mi"), HOME),
                Mount(OwnDisk("data", broker.storage, broker.storage_class), f"{HOME}/mnesia"),
                Mount(Files(), "/etc/rabbitmq/conf.d/20-fleet.conf", "20-fleet.conf", read_only=True),
                Mount(Files(), "/etc/rabbitmq/enabled_plugins", "enabled_plugins", read_only=True),
                Mount(Files(secret=True), "/etc/rabbitmq/definitions", read_only=True),
            ),
            startup=probes.tcp("amqp", every_s=5, failures=120),
            liveness=probes.command("rabbitmq-diagnostics", "-q", "ping", every_s=60, timeout_s=30, failures=5),
            readiness=probes.command("rabbitmq-diagnostics", "-q", "check_running", every_s=30, timeout_s=20),
            before_stop=_before_stop(broker.nodes),
        ),
        files={"20-fleet.conf": configuration(broker.nodes), "enabled_plugins": PLUGINS},
        secrets={"RABBITMQ_ERLANG_COOKIE": accounts.cookie},
        secret_files={"definitions.json": accounts.definitions()},
        drain_s=DRAIN_S,
        scale=Scale(broker.nodes, broker.nodes),
        metrics="metrics",
        spread_strictly=broker.nodes > 1,
        user=RABBITMQ_USER,
    )


PLUGINS = "[rabbitmq_management,rabbitmq_prometheus,rabbitmq_peer_discovery_k8s].\n"


def configuration(nodes: int) -> str:
    """The peer discovery of 4.1 asks no Kubernetes API: every node joins the one with ordinal 0."""
    lines = [
        "load_definitions = /etc/rabbitmq/definitions/definitions.json",
        f"consumer_timeout = {CONSUMER_TIMEOUT_MS}",
        f"disk_free_limit.absolute = {DISK_RESERVE}",
        "vm_memory_high_watermark.relative = 0.6",
        "raft.wal_max_size_bytes = 67108864",
        "queue_leader_locator = balanced",
        "default_queue_type = quorum",
        "log.file = false",
        "log.console = true",
    ]
    if nodes > 1:
        lines += ["cluster_formation.peer_discovery_backend = k8s", "cluster_partition_handling = pause_minority"]
    return "\n".join(lines) + "\n"


def _before_stop(nodes: int) -> tuple[str, ...]:
    wait = f"rabbitmq-upgrade await_online_quorum_plus_one -t {DRAIN_S - 60}; " if nodes > 1 else ""
    return "/bin/bash", "-c", f"{wait}rabbitmq-upgrade drain"
