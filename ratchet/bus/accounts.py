"""The broker's users and what each may do, derived from the table of queues: the least a service needs.

RabbitMQ asks twice. A user's permissions are patterns over the names of what it configures, writes to and reads from;
on a topic exchange (here: all that services publish to) a second pattern says which routing keys it may use. The queues
are declared once, by a user that may. The broker knows passwords as salted hashes only.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.bus.amqp.rabbit_bus import RabbitBus
from ratchet.bus.amqp.short_connection import BrokerUnreachable, without_password
from ratchet.bus.topology import (
    AUDITS,
    BROADCAST_EXCHANGE,
    DEAD_LETTERS,
    EXCHANGE,
    FEEDBACK,
    LISTENER,
    MANAGER,
    RESULTS,
    REWARDS,
    ROLLOUTS_TOPIC,
    TASKS,
    TRAINING,
    Topology,
    cancellations_topic,
    events_topic,
    tenants_user,
)

DEFAULT_EXCHANGE = "amq.default"
"""Permissions call the exchange without a name so; who may write to it may write to any queue by its name."""
REPLY_QUEUES, NAMED_BY_BROKER = r"reply\.", r"amq\.gen"
"""A client's queues for answers begin so, the first under the fleet's namespace."""
NOTHING = "^$"
EVERYTHING = ".*"
SETUP = "setup"
GUEST = "guest"
"""A new broker has it, with its name as the password."""
VHOST = "/"
SALT_BYTES = 4


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Patterns of the routing keys a user may publish with (`write`) and bind with (`read`) on a topic exchange."""

    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the broker. `name` is its role; the broker knows it under the fleet's namespace. `tags` give access to
    the management pages."""

    name: str
    configure: str
    write: str
    read: str
    topics: tuple[TopicPermission, ...] = ()
    tags: tuple[str, ...] = ()


def accounts(
    topology: Topology, agents: Iterable[str], namespace: str = "", *, runner: bool = False, tenants: Iterable[str] = ()
) -> tuple[Account, ...]:
    """All users of a fleet; with a `runner`, one for that too, and one for each of the `tenants`.

    `setup` declares the queues; each service has a user, each agent one of its own; `client` asks tasks and reads
    answers; `manager` asks the tasks of jobs, and for trainings; `operator` is for people: dead letters, and the
    management pages.
    """
    rules = _Rules(topology, namespace)
    agents = tuple(agents)
    return (
        Account(SETUP, EVERYTHING, EVERYTHING, EVERYTHING),
        rules.orchestrator(hears_runners=runner),
        *(rules.agent(agent_id) for agent_id in agents),
        *([rules.runner(agents)] if runner else []),
        rules.service("scorer"),
        *([rules.service("auditor")] if AUDITS in topology.names else []),
        rules.service("trainer"),
        rules.client(),
        rules.asking(MANAGER, TRAINING),
        *(rules.asking(tenants_user(tenant)) for tenant in tenants),
        rules.operator(),
    )


class _Rules:
    def __init__(self, topology: Topology, namespace: str) -> None:
        self._topology = topology
        self._namespace = namespace
        self._prefix = re.escape(namespace)

    def service(self, name: str) -> Account:
        return self._worker(name, {name, "all services"})

    def orchestrator(self, *, hears_runners: bool) -> Account:
        """Answers, and dead letters on their way back, go to queues by name; its API shows the dead letters.

        Where there are runners it hears what they tell, through a queue of its own.
        """
        reads = (DEAD_LETTERS, BROADCAST_EXCHANGE) if hears_runners else (DEAD_LETTERS,)
        own = self._worker("orchestrator", {"orchestrator", "all services"}, writes=(BROADCAST_EXCHANGE,), reads=reads)
        heard = self._one_of((ROLLOUTS_TOPIC,)) if hears_runners else NOTHING
        topics = self._one_of((events_topic(""), cancellations_topic("")), end="")
        events = TopicPermission(self._wire(BROADCAST_EXCHANGE), topics, heard)
        write = f"{own.write}|^{re.escape(DEFAULT_EXCHANGE)}$"
        if not hears_runners:
            return Account(own.name, own.configure, write, own.read, (*own.topics, events))
        listeners = self._one_of((LISTENER,), end="")
        return Account(own.name, listeners, f"{write}|{listeners}", f"{own.read}|{listeners}", (*own.topics, events))

    def agent(self, agent_id: str) -> Account:
        """Hears its own events and the copies of the rewards, through queues of its own."""
        own = self._worker(
            f"agent-{agent_id}", {f"agent {agent_id}", "agents", "all services"}, reads=(BROADCAST_EXCHANGE,)
        )
        listeners = self._one_of((LISTENER,), end="")
        heard = self._one_of((events_topic(agent_id), cancellations_topic(agent_id), REWARDS))
        broadcast = TopicPermission(self._wire(BROADCAST_EXCHANGE), NOTHING, heard)
        return Account(
            own.name, listeners, f"{own.write}|{listeners}", f"{own.read}|{listeners}", (*own.topics, broadcast)
        )

    def runner(self, agents: Iterable[str]) -> Account:
        """Takes the tasks of the agents, answers in their place, and tells of what it runs; hears which of the tasks
        were cancelled, and nothing else."""
        agents = tuple(agents)
        roles = {*(f"agent {agent_id}" for agent_id in agents), "agents", "runner", "all services"}
        own = self._worker("runner", roles, writes=(BROADCAST_EXCHANGE,), reads=(BROADCAST_EXCHANGE,))
        heard = self._one_of(tuple(cancellations_topic(agent_id) for agent_id in agents))
        broadcast = TopicPermission(self._wire(BROADCAST_EXCHANGE), self._one_of((ROLLOUTS_TOPIC,)), heard)
        listeners = self._one_of((LISTENER,), end="")
        return Account(
            own.name, listeners, f"{own.write}|{listeners}", f"{own.read}|{listeners}", (*own.topics, broadcast)
        )

    def client(self) -> Account:
        own = f"^({self._prefix}{REPLY_QUEUES}|{NAMED_BY_BROKER})"
        topics = (TopicPermission(self._wire(EXCHANGE), self._one_of((TASKS, FEEDBACK)), NOTHING),)
        return Account("client", own, self._one_of((EXCHANGE,)), f"{own}|{self._one_of((RESULTS,))}", topics)

    def asking(self, name: str, *also: str) -> Account:
        """Asks tasks as a client does, and reads its own answers: not the queue that has everybody's. `also`: further
        queues that it publishes to."""
        client = self.client()
        own = f"^({self._prefix}{REPLY_QUEUES}|{NAMED_BY_BROKER})"
        topics = (TopicPermission(self._wire(EXCHANGE), self._one_of((TASKS, FEEDBACK, *also)), NOTHING),)
        return Account(name, client.configure, client.write, own, topics)

    def operator(self) -> Account:
        """Sends dead letters back to wherever they failed, so it may write to any queue by name."""
        consumed, produced = self._queues({"operator"}), self._queues_of_producers({"operator"})
        write = f"{self._one_of((EXCHANGE,))}|^{re.escape(DEFAULT_EXCHANGE)}$"
        topics = (TopicPermission(self._wire(EXCHANGE), self._one_of(produced), NOTHING),)
        return Account("operator", NOTHING, write, self._one_of(consumed), topics, ("monitoring",))

    def _worker(
        self, name: str, roles: set[str], *, writes: tuple[str, ...] = (), reads: tuple[str, ...] = ()
    ) -> Account:
        """Consumes its queues, publishes to those it produces for, and sends what failed up the retry ladder."""
        consumed, produced = self._queues(roles), self._queues_of_producers(roles)
        rungs = tuple(rung.name for rung in self._topology.rungs)
        retried = self._one_of(consumed)
        return Account(
            name,
            NOTHING,
            self._one_of((EXCHANGE, *rungs, *writes)),
            self._one_of((*consumed, *reads)),
            (
                TopicPermission(self._wire(EXCHANGE), self._one_of(produced), NOTHING),
                *(TopicPermission(self._wire(rung), retried, NOTHING) for rung in rungs),
            ),
        )

    def _queues(self, roles: set[str]) -> tuple[str, ...]:
        return tuple(queue.name for queue in self._topology.queues if roles & set(queue.consumers))

    def _queues_of_producers(self, roles: set[str]) -> tuple[str, ...]:
        return tuple(queue.name for queue in self._topology.queues if roles & set(queue.producers))

    def _wire(self, name: str) -> str:
        return self._namespace + name

    def _one_of(self, names: Iterable[str], end: str = "$") -> str:
        """A pattern that matches these names under the fleet's namespace, or what begins with them."""
        return f"^{self._prefix}({'|'.join(map(re.escape, names))}){end}"


def definitions(passwords: Mapping[Account, str], namespace: str) -> dict[str, Any]:
    """Return what RabbitMQ imports at its start (`load_definitions`): without it, there would be the user guest.

    An unchanged password has the same salt again, so that it does not look like a change.
    """
    names = {account: namespace + account.name for account in passwords}
    salts = {account: hashlib.sha256(f"{account.name}/{one}".encode()).digest() for account, one in passwords.items()}
    return {
        "vhosts": [{"name": VHOST}],
        "users": [
            {
                "name": names[account],
                "password_hash": password_hash(password, salts[account][:SALT_BYTES]),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": list(account.tags),
            }
            for account, password in passwords.items()
        ],
        "permissions": [
            {
                "user": names[account],
                "vhost": VHOST,
                "configure": account.configure,
                "write": account.write,
                "read": account.read,
            }
            for account in passwords
        ],
        "topic_permissions": [
            {
                "user": names[account],
                "vhost": VHOST,
                "exchange": topic.exchange,
                "write": topic.write,
                "read": topic.read,
            }
            for account in passwords
            for topic in account.topics
        ],
    }


def password_hash(password: str, salt: bytes) -> str:
    """Base64 of the salt and the SHA-256 of salt and password: https://www.rabbitmq.com/docs/passwords."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


async def declare(url: str, topology: Topology, namespace: str, timeout_s: float) -> None:
    """Raises TopologyConflict, and BrokerUnreachable where no broker took it within the time."""
    bus = RabbitBus(url, topology, name="setup", namespace=namespace)
    try:
        async with asyncio.timeout(timeout_s):
            await bus.start()
    except TimeoutError:
        raise BrokerUnreachable(
            f"no broker at {without_password(url)} let the queues be declared within {timeout_s:g} s: {bus.trouble()}"
        ) from None
    await bus.stop(0.0)
