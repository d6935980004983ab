"""What runners tell of their rollouts: the newest word counts, silence is an end, and what is new is an event."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import ROLLOUTS_TOPIC
from schemas.messages.runner_rollouts import RolloutProgress, RunnerRollouts
from services.orchestrator.observation.event_hub import EventHub
from services.orchestrator.observation.rollouts_now import (
    KEPT,
    MOST_BYTES,
    MOST_RUNNERS,
    MOST_RUNNING,
    MOST_TOLD,
    SILENT_S,
    RolloutsNow,
)

BEGAN = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)


class Hub(EventHub):
    """With somebody who listens."""

    def __init__(self) -> None:
        super().__init__("now")
        self.clients = 1
        self.told: list[tuple[str, dict[str, Any]]] = []

    def publish(self, kind: str, data: Any) -> None:
        self.told.append((kind, msgspec.json.decode(msgspec.json.encode(data))))


class House:
    def __init__(self) -> None:
        self.at = 100.0
        self.hub = Hub()
        self.rollouts = RolloutsNow(self.hub, lambda: self.at)

    def hears(self, *items: RolloutProgress, runner: str = "a", waiting: int = 0) -> None:
        body = RunnerRollouts(runner=runner, at_once=4, waiting=waiting, items=items).encode()
        self.rollouts.receive_broadcast(Delivery(ROLLOUTS_TOPIC, body, RunnerRollouts.TYPE))

    def states(self, **chosen: Any) -> list[tuple[str, int, str]]:
        return [(one.task_id, one.sample, one.state) for one in self.rollouts.now(**chosen).items]


def one(sample: int = 0, state: str = "running", calls: int = 1, task: str = "t-1", **given: Any) -> RolloutProgress:
    fields = {"task_id": task, "agent_id": "small", "program": "shell", "sample": sample, "state": state}
    fields |= {"started_at": BEGAN, "seconds": 2.0, "calls": calls, "sampled_tokens": 10 * calls}
    return RolloutProgress.model_validate(fields | given)


def test_a_rollout_runs_gets_on_and_ends_and_each_is_an_event_once() -> None:
    house = House()

    house.hears(one(), waiting=2)
    house.hears(one(), waiting=2)
    house.hears(one(calls=2))
    house.hears(one(state="limit", calls=2, says="it called the model more than 2 times"), one(1))
    house.hears(one(state="limit", calls=2, says="it called the model more than 2 times"), one(1))

    told = [(kind, data["sample"], data["state"], data["calls"]) for kind, data in house.hub.told]
    assert told == [
        ("rollout", 0, "running", 1),
        ("rollout", 0, "running", 2),
        ("rollout", 0, "limit", 2),
        ("rollout", 1, "running", 1),
    ]
    assert house.states() == [("t-1", 0, "limit"), ("t-1", 1, "running")]
    assert house.rollouts.now().items[0].says == "it called the model more than 2 times"
    (runner,) = house.rollouts.now().runners
    assert (runner.runner, runner.at_once, runner.running, runner.waiting) == ("a", 4, 1, 0)


def test_tasks_and_agents_are_told_apart() -> None:
    house = House()
    house.hears(one(), one(task="t-2"))
    house.hears(one(task="t-3", agent_id="coder"), runner="b")

    assert house.states(task_id="t-2") == [("t-2", 0, "running")]
    assert house.states(agent_id="coder") == [("t-3", 0, "running")]
    assert len(house.states()) == 3


def test_what_a_runner_no_more_tells_of_does_not_run_and_nor_does_what_a_silent_one_ran() -> None:
    house = House()
    house.hears(one(), one(1))
    house.hears(one(1))
    house.hears(one(task="t-9"), runner="b")
    assert house.states() == [("t-1", 1, "running"), ("t-9", 0, "running")]

    house.at += SILENT_S - 1
    house.hears(one(task="t-9"), runner="b")
    house.at += 2

    assert house.states() == [("t-9", 0, "running")]
    assert [runner.runner for runner in house.rollouts.now().runners] == ["b"]


def test_one_that_is_run_again_by_another_runner_runs_and_its_old_end_does_not_come_back() -> None:
    house = House()
    ended = one(state="failed")
    house.hears(ended)
    house.hears(one(started_at=BEGAN + timedelta(seconds=9)), runner="b")
    house.hears(ended)

    assert house.states() == [("t-1", 0, "running")]
    assert [data["state"] for _, data in house.hub.told] == ["failed", "running"]


def test_a_hostile_runner_takes_no_more_memory_than_there_is_for_it() -> None:
    house = House()
    house.hears(*(one(n) for n in range(MOST_TOLD + 5)))
    assert len(house.states()) == MOST_TOLD

    house.hears(one(task="t-2", says="x" * 2000), runner="b")
    house.rollouts.receive_broadcast(Delivery(ROLLOUTS_TOPIC, b" " * (MOST_BYTES + 1), RunnerRollouts.TYPE))
    for number in range(MOST_RUNNERS + 5):
        house.hears(*(one(n, task=f"t-{number}") for n in range(40)), runner=f"r-{number}")
    assert len(house.rollouts._runners) == MOST_RUNNERS
    assert len(house.rollouts._running) == MOST_RUNNING

    house.at += SILENT_S + 1
    house.hears(one(), runner="new")
    assert (len(house.rollouts._runners), len(house.rollouts._running)) == (1, 1)


def test_ends_are_forgotten_and_what_can_not_be_read_is_passed_over() -> None:
    house = House()
    house.hears(*(one(n, "finished", started_at=BEGAN + timedelta(seconds=n)) for n in range(KEPT + 3)))
    house.rollouts.receive_broadcast(Delivery(ROLLOUTS_TOPIC, b"{}", RunnerRollouts.TYPE))
    house.rollouts.receive_broadcast(Delivery(ROLLOUTS_TOPIC, b"{}", "another.v1"))

    assert len(house.states()) == KEPT
    assert house.states()[0] == ("t-1", 3, "finished")


def test_without_anybody_who_listens_there_are_no_events() -> None:
    house = House()
    house.hub.clients = 0

    house.hears(one())

    assert house.hub.told == []
    assert house.states() == [("t-1", 0, "running")]
