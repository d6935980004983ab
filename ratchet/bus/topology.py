"""Every queue of the fleet, in one table: which message it holds, who produces it, who consumes it, and its bounds.

Pure data. The bus declares it, the AsyncAPI document is generated from it, `ratchet watch` lists it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ratchet.bus.retry_policy import MAX_BYTES, RETRY_LADDER, Rung
from ratchet.service.settings import FleetSettings

EXCHANGE = "ratchet"
DEAD_EXCHANGE = "ratchet.dead"
UNROUTABLE_EXCHANGE = "ratchet.unroutable"
BROADCAST_EXCHANGE = "ratchet.broadcast"
"""The exchange for all that listen just now, each with its own copy: events to agents, and copies of the rewards."""
LISTENER = "ratchet.listener."
"""The names of listeners' own queues begin so: each lives as long as its listener's connection."""

DELIVERY_LIMIT = 20
READ_LIMIT = 1_000_000
"""Deliveries of a message only people look at: each time counts as one, and RabbitMQ 4 would drop it at the 20th."""
CONSUMER_TIMEOUT_MS = 6 * 3600 * 1000
HIGH_PRIORITY = 5
"""The priority from which a task's Work waits in the agent's queue for high priority."""

BROKER_DISK = 20 * 10**9
"""Bytes of the broker's disk, where no setting says (RATCHET_BROKER_DISK_GB)."""
WORK_SHARE = 0.12
"""The share of the broker's disk for all queues of Work together; the shares of all queues add up to 0.6 of it."""

REGISTERED_SHARE = 0.02
"""The share for those of registered agents."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable quorum queue. A full one refuses publishes (back-pressure) unless `drop_oldest`."""

    name: str
    message: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    about: str
    share: float
    """The share of the broker's disk that its messages may take."""
    disk: int
    """Bytes of it."""
    max_length: int = 1_000_000
    single_active_consumer: bool = False
    ttl_ms: int | None = None
    drop_oldest: bool = False
    dead_letters: bool = True
    delivery_limit: int = DELIVERY_LIMIT
    expires_ms: int | None = None
    """Deleted when nobody has consumed it for so long, and a plain queue: of a program that comes and goes."""

    @property
    def max_bytes(self) -> int:
        return int(self.share * self.disk)

    @property
    def arguments(self) -> dict[str, Any]:
        """The `x-` arguments it is declared with. Changing one of an existing queue needs a migration.

        But for the bound in bytes: a queue that has another one is taken as it is.
        """
        if self.expires_ms is not None:
            return {"x-queue-type": "classic", "x-expires": self.expires_ms}
        arguments: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-max-length": self.max_length,
            MAX_BYTES: self.max_bytes,
            "x-overflow": "drop-head" if self.drop_oldest else "reject-publish",
            "x-consumer-timeout": CONSUMER_TIMEOUT_MS,
            "x-delivery-limit": self.delivery_limit,
        }
        if self.dead_letters:
            arguments |= {"x-dead-letter-exchange": DEAD_EXCHANGE, "x-dead-letter-strategy": "at-least-once"}
        if self.single_active_consumer:
            arguments["x-single-active-consumer"] = True
        if self.ttl_ms is not None:
            arguments["x-message-ttl"] = self.ttl_ms
        return arguments


@dataclass(frozen=True, slots=True)
class Topology:
    queues: tuple[Queue, ...]
    rungs: tuple[Rung, ...]

    def queue(self, name: str) -> Queue:
        """Raises KeyError for a queue that is not of this fleet."""
        for queue in self.queues:
            if queue.name == name:
                return queue
        raise KeyError(f"no queue {name!r} in this fleet's topology")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(queue.name for queue in self.queues)


TASKS = "tasks"
RESPONSES = "responses"
DRAFT_RESPONSES = "responses.draft"
KEPT_RESPONSES = "responses.kept"
REWARDS = "rewards"
RESULTS = "results"
APPROVALS = "approvals"
AUDITS = "audits"
AUDIT_SCORES = "audits.scores"
FEEDBACK = "feedback"
TRAINING = "training"
ADAPTERS = "adapters"
ADAPTER_REPORTS = "adapters.reports"
DEAD_LETTERS = "dead-letters"
UNROUTABLE = "unroutable"

DAY_MS = 24 * 3600 * 1000


def work_queue(agent_id: str, *, priority: int = 0, registered: bool = False) -> str:
    """The queue in which an agent's Work of that priority (0–9) waits; or that for programs of registered agents, which
    use its model."""
    if registered:
        return f"work.{agent_id}.programs"
    return f"work.{agent_id}.high" if priority >= HIGH_PRIORITY else f"work.{agent_id}"


MANAGER = "manager"
"""The manager's user of the broker, without the fleet's namespace."""


def tenants_user(tenant: str) -> str:
    """Return the broker's user of a tenant, without the fleet's namespace."""
    return f"client-{tenant}"


ROLLOUTS_TOPIC = "rollouts"
"""The topic on which runners report the rollouts they run."""


def cancellations_topic(agent_id: str) -> str:
    """Return the topic that says which of an agent's tasks were cancelled."""
    return f"cancelled.{agent_id}"


def events_topic(agent_id: str) -> str:
    """Return the topic that all replicas of an agent listen to, besides their work queue."""
    return f"events.{agent_id}"


def fleet_topology(
    agents: tuple[str, ...],
    *,
    external_scorer: bool = False,
    auditor: bool = False,
    manager: bool = False,
    programs: bool = False,
    broker_disk: int = BROKER_DISK,
) -> Topology:
    """The queues of a fleet with these agents, on a broker with so many bytes of disk.

    With an `external_scorer`, one of another make that may answer with draft-shaped Rewards, the orchestrator gets its
    own copy of each Response, to complete those Rewards with. With an `auditor`, a second scorer, there are its queues;
    with a `manager`, a queue for the programs of registered agents for each agent whose model they use. With
    `programs`, there is one for what they ask people.
    """
    queue = partial(Queue, disk=broker_disk)
    work = tuple(
        queue(name, "work.v1", ("orchestrator",), (f"agent {agent}",), about, WORK_SHARE / (2 * len(agents)))
        for agent in agents
        for name, about in (
            (work_queue(agent), f"Admitted tasks for {agent}."),
            (work_queue(agent, priority=9), f"The same, priority {HIGH_PRIORITY} and above: served first."),
        )
    )
    registered = tuple(
        queue(
            work_queue(agent, registered=True),
            "work.v1",
            ("orchestrator",),
            (f"agent {agent}",),
            f"Admitted tasks for programs of registered agents, with the model of {agent}.",
            REGISTERED_SHARE / len(agents),
        )
        for agent in agents
    )
    kept = (
        queue(
            KEPT_RESPONSES,
            "response.v1",
            ("agents",),
            ("orchestrator",),
            "Copies, until their Rewards come.",
            0.02,
            single_active_consumer=True,
        ),
    )
    audits = (
        queue(AUDITS, "response.v1", ("orchestrator",), ("auditor",), "Answers that are scored a second time.", 0.01),
        queue(
            AUDIT_SCORES,
            "reward.v1",
            ("auditor",),
            ("orchestrator",),
            "The auditor's scores, which teach nothing.",
            0.01,
            single_active_consumer=True,
        ),
    )
    approvals = (
        queue(
            APPROVALS,
            "approval_request.v1",
            ("runner",),
            ("orchestrator",),
            "What programs ask people.",
            0.005,
            single_active_consumer=True,
        ),
    )
    queues = (
        queue(TASKS, "task.v1", ("users",), ("orchestrator",), "What users ask.", 0.08, single_active_consumer=True),
        *work,
        *(registered if manager else ()),
        queue(
            RESPONSES, "response.v1", ("agents", "orchestrator"), ("scorer",), "Answers that wait for a score.", 0.08
        ),
        queue(
            DRAFT_RESPONSES,
            "response.v1",
            ("agents", "scorer"),
            ("orchestrator",),
            "Answers without their Work.",
            0.02,
            single_active_consumer=True,
        ),
        *(kept if external_scorer else ()),
        *(audits if auditor else ()),
        *(approvals if programs else ()),
        queue(REWARDS, "reward.v1", ("scorer",), ("orchestrator",), "Scores.", 0.08, single_active_consumer=True),
        queue(
            RESULTS,
            "result.v1",
            ("orchestrator",),
            ("users",),
            "Answers: the newest million, for 7 days.",
            0.07,
            ttl_ms=7 * DAY_MS,
            drop_oldest=True,
            dead_letters=False,
            delivery_limit=READ_LIMIT,
        ),
        queue(
            FEEDBACK,
            "feedback.v1",
            ("users",),
            ("orchestrator",),
            "What applications think of their answers.",
            0.01,
            single_active_consumer=True,
        ),
        queue(
            TRAINING,
            "train_request.v1",
            ("orchestrator", "manager", "operator"),
            ("trainer",),
            "What is to be trained.",
            0.005,
        ),
        queue(
            ADAPTERS,
            "adapter_trained.v1",
            ("trainer",),
            ("orchestrator",),
            "How training runs ended.",
            0.005,
            single_active_consumer=True,
        ),
        queue(
            ADAPTER_REPORTS,
            "adapter_report.v1",
            ("agents",),
            ("orchestrator",),
            "What each replica of an agent has loaded.",
            0.005,
            single_active_consumer=True,
        ),
        queue(
            DEAD_LETTERS,
            "any",
            ("all services", "broker"),
            ("operator",),
            "What could not be handled, whole, with the reason in a header.",
            0.04,
            dead_letters=False,
            delivery_limit=READ_LIMIT,
        ),
        queue(
            UNROUTABLE,
            "any",
            ("broker",),
            ("operator",),
            "What was published under a name no queue has.",
            0.01,
            dead_letters=False,
            delivery_limit=READ_LIMIT,
        ),
    )
    return Topology(queues, tuple(replace(rung, max_bytes=broker_disk // 100) for rung in RETRY_LADDER))


def topology_of(settings: FleetSettings) -> Topology:
    return fleet_topology(
        settings.agents,
        external_scorer=settings.external_scorer,
        auditor=bool(settings.auditor),
        manager=settings.manager_url is not None,
        programs=settings.has_runner,
        broker_disk=int(settings.broker_disk_gb * 10**9),
    )
