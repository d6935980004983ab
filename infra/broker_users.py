"""The broker's users and what each may do: the least it needs. Pure.

RabbitMQ asks twice: for patterns over the names of what a user configures, writes to and reads from, and, on a topic
exchange, for patterns over routing keys. A test holds this table to the fleet's own, which compose uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

EXCHANGE, BROADCAST, BY_NAME = "ratchet", "ratchet.broadcast", "amq.default"
"""Where services publish; where they speak to whoever listens; and, for answers, any queue by its name."""
RUNGS = ("retry.5s", "retry.30s", "retry.5m")
LISTENERS = r"^ratchet\.listener\."
OWN_QUEUES = r"^(reply\.|amq\.gen)"
NOTHING, EVERYTHING = "^$", ".*"
ROLLOUTS = "rollouts"
"""The topic on which runners tell what they run."""
SETUP, CLIENT, OPERATOR, SCALER, SCORER = "setup", "client", "operator", "keda", "scorer"


@dataclass(frozen=True, slots=True)
class Topic:
    """Routing keys a user may publish with, and bind with, on a topic exchange."""

    exchange: str
    write: str
    read: str = NOTHING


@dataclass(frozen=True, slots=True)
class User:
    """Patterns of the names of queues and exchanges. `tags` open the management interface."""

    name: str
    configure: str = NOTHING
    write: str = NOTHING
    read: str = NOTHING
    topics: tuple[Topic, ...] = ()
    tags: tuple[str, ...] = ()


def users(
    agents: Iterable[str], *, auditor: bool = False, runner: bool = False, external_scorer: bool = False
) -> tuple[User, ...]:
    """`setup` declares the queues; then a user for each process, for clients, for people, and for KEDA, which looks."""
    agents = tuple(agents)
    return (
        User(SETUP, EVERYTHING, EVERYTHING, EVERYTHING),
        _orchestrator(agents, audits=auditor, keeps=external_scorer, hears_runners=runner),
        *(_agent(agent, keeps=external_scorer) for agent in agents),
        *([_runner(agents, keeps=external_scorer)] if runner else []),
        _worker(SCORER, reads=("responses",), publishes=("responses.draft", "rewards")),
        *([_worker("auditor", reads=("audits",), publishes=("audits.scores",))] if auditor else []),
        _worker("trainer", reads=("training",), publishes=("adapters",)),
        User(CLIENT, OWN_QUEUES, exactly(EXCHANGE), f"{OWN_QUEUES}|{exactly('results')}", (_to("tasks", "feedback"),)),
        User(
            OPERATOR,
            write=exactly(EXCHANGE, BY_NAME),
            read=exactly("dead-letters", "unroutable"),
            topics=(_to("training"),),
            tags=("monitoring",),
        ),
        User(SCALER, tags=("monitoring",)),
    )


def exactly(*names: str) -> str:
    return f"^({'|'.join(map(re.escape, names))})$"


def work_queues(agent: str) -> tuple[str, str]:
    return f"work.{agent}", f"work.{agent}.high"


def _to(*queues: str) -> Topic:
    return Topic(EXCHANGE, exactly(*queues))


def _worker(name: str, *, reads: tuple[str, ...], publishes: tuple[str, ...]) -> User:
    """What failed goes up the retry ladder under the name of the queue it came from, and at last to `dead-letters`."""
    ladder = tuple(Topic(rung, exactly(*reads)) for rung in RUNGS)
    topics = (_to(*publishes, "dead-letters"), *ladder)
    return User(name, write=exactly(EXCHANGE, *RUNGS), read=exactly(*reads), topics=topics)


def _orchestrator(agents: tuple[str, ...], *, audits: bool, keeps: bool, hears_runners: bool) -> User:
    """`keeps`: copies of the Responses, to complete the Rewards of a scorer of another make with.

    Where there are runners it hears what they tell, through a queue of its own.
    """
    work = tuple(queue for agent in agents for queue in work_queues(agent))
    own = _worker(
        "orchestrator",
        reads=(
            *("tasks", "responses.draft", "rewards", "feedback", "adapters", "adapters.reports"),
            *(("responses.kept",) if keeps else ()),
            *(("audits.scores",) if audits else ()),
        ),
        publishes=(*work, "responses", "results", "training", *(("audits",) if audits else ())),
    )
    events = Topic(BROADCAST, r"^events\.", exactly(ROLLOUTS) if hears_runners else NOTHING)
    listeners = f"|{LISTENERS}" if hears_runners else ""
    return User(
        own.name,
        configure=LISTENERS if hears_runners else NOTHING,
        write=f"{own.write}|{exactly(BROADCAST, BY_NAME)}{listeners}",
        read=f"{own.read}|{exactly('dead-letters', *([BROADCAST] if hears_runners else []))}{listeners}",
        topics=(*own.topics, events),
    )


def _answers(*, keeps: bool) -> tuple[str, ...]:
    return ("responses", "responses.draft", "adapters.reports", *(("responses.kept",) if keeps else ()))


def _runner(agents: tuple[str, ...], *, keeps: bool) -> User:
    """It takes the agents' tasks, answers in their place, and tells of what it runs; it hears nothing."""
    queues = tuple(queue for agent in agents for queue in work_queues(agent))
    own = _worker("runner", reads=queues, publishes=_answers(keeps=keeps))
    told = Topic(BROADCAST, exactly(ROLLOUTS))
    return User(own.name, write=f"{own.write}|{exactly(BROADCAST)}", read=own.read, topics=(*own.topics, told))


def _agent(agent: str, *, keeps: bool) -> User:
    """It hears its events, and copies of the rewards, through queues of its own."""
    own = _worker(f"agent-{agent}", reads=work_queues(agent), publishes=_answers(keeps=keeps))
    heard = Topic(BROADCAST, NOTHING, exactly(f"events.{agent}", "rewards"))
    return User(
        own.name,
        configure=LISTENERS,
        write=f"{own.write}|{LISTENERS}",
        read=f"{own.read}|{exactly(BROADCAST)}|{LISTENERS}",
        topics=(*own.topics, heard),
    )
