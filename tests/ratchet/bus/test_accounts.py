"""The rules by which the broker's users are derived; that the broker keeps to them is tested on a real one."""

from __future__ import annotations

import re

from ratchet.bus.accounts import Account, accounts
from ratchet.bus.topology import (
    BROADCAST_EXCHANGE,
    KEPT_RESPONSES,
    LISTENER,
    ROLLOUTS_TOPIC,
    Topology,
    cancellations_topic,
    events_topic,
    fleet_topology,
)

AGENTS = ("small", "coder")


def fleet(topology: Topology, namespace: str = "") -> dict[str, Account]:
    return {account.name: account for account in accounts(topology, AGENTS, namespace)}


def keys(account: Account, topology: Topology) -> set[str]:
    """Queues it may publish to through the exchange `ratchet`."""
    patterns = [topic.write for topic in account.topics if topic.exchange == "ratchet"]
    return {name for name in topology.names if any(re.search(pattern, name) for pattern in patterns)}


def test_every_queue_is_read_and_fed_by_somebody() -> None:
    topology = fleet_topology(AGENTS, external_scorer=True, auditor=True)
    users = [account for account in fleet(topology).values() if account.name != "setup"]

    read = {name for name in topology.names if any(re.search(account.read, name) for account in users)}
    fed = set().union(*(keys(account, topology) for account in users))

    assert read == topology.names
    assert topology.names - fed == {"unroutable"}


def test_a_third_partys_scorer_gives_the_orchestrator_one_more_queue() -> None:
    without, having = (fleet(fleet_topology(AGENTS, external_scorer=external)) for external in (False, True))

    assert not re.search(without["orchestrator"].read, KEPT_RESPONSES)
    assert re.search(having["orchestrator"].read, KEPT_RESPONSES)


def test_a_namespace_is_part_of_every_name_and_its_dots_are_dots() -> None:
    scorer = fleet(fleet_topology(AGENTS), "team.a-")["scorer"]

    assert re.search(scorer.read, "team.a-responses")
    assert not re.search(scorer.read, "teamxa-responses")
    assert not re.search(scorer.read, "responses")
    assert {topic.exchange for topic in scorer.topics} == {
        "team.a-ratchet", "team.a-retry.5s", "team.a-retry.30s", "team.a-retry.5m",
    }  # fmt: skip


def test_only_the_set_up_configures_more_than_queues_of_its_own() -> None:
    users = fleet(fleet_topology(AGENTS)).values()

    assert [user.name for user in users if re.search(user.configure, "tasks")] == ["setup"]


def test_the_orchestrator_hears_runners_and_only_they_tell() -> None:
    topology = fleet_topology(AGENTS)
    without = fleet(topology)
    users = {one.name: one for one in accounts(topology, AGENTS, runner=True)}

    def may(user: Account, what: str) -> bool:
        patterns = [getattr(topic, what) for topic in user.topics if topic.exchange == BROADCAST_EXCHANGE]
        return any(re.search(pattern, ROLLOUTS_TOPIC) for pattern in patterns)

    assert {name for name, user in users.items() if may(user, "write")} == {"runner"}
    assert {name for name, user in users.items() if may(user, "read")} == {"orchestrator"}
    own = f"{LISTENER}abc"
    assert all(re.search(getattr(users["orchestrator"], what), own) for what in ("configure", "write", "read"))
    assert re.search(users["orchestrator"].read, BROADCAST_EXCHANGE)
    assert not may(without["orchestrator"], "read") and without["orchestrator"].configure == "^$"


def test_a_runner_hears_which_of_its_agents_tasks_were_cancelled_and_nothing_else() -> None:
    users = {one.name: one for one in accounts(fleet_topology(AGENTS), AGENTS, runner=True)}
    topics = [cancellations_topic("small"), cancellations_topic("else"), events_topic("small"), "rewards"]

    def may(user: str, what: str) -> list[bool]:
        (pattern,) = (getattr(one, what) for one in users[user].topics if one.exchange == BROADCAST_EXCHANGE)
        return [bool(re.search(pattern, topic)) for topic in topics]

    assert may("runner", "read") == [True, False, False, False]
    assert may("agent-small", "read") == [True, False, True, True]
    assert may("orchestrator", "write") == [True, True, True, False]
