"""An agent hears what its answers were worth."""

from __future__ import annotations

from ratchet.bus.topology import events_topic, fleet_topology
from schemas.messages.adapter_event import AdapterEvent
from schemas.messages.reward import AgentRewards, TaskScores
from services.agent.rewards import RewardListener
from tests.memory_bus import MemoryBus


def task(version: str, *scores: float | None) -> TaskScores:
    return TaskScores(task_id="t", adapter_version=version, scores=scores)


async def listening(agent_id: str = "small") -> tuple[RewardListener, MemoryBus]:
    bus = MemoryBus(fleet_topology(("small", "other")))
    await bus.start()
    listener = RewardListener(agent_id, bus)
    await listener.start()
    return listener, bus


async def tell(bus: MemoryBus, agent_id: str, *tasks: TaskScores) -> None:
    body = AgentRewards(agent_id=agent_id, tasks=tasks).encode()
    await bus.broadcast(events_topic(agent_id), body, type=AgentRewards.TYPE, message_id="r")


async def test_the_running_score_is_the_mean_of_all_scored_samples_by_version() -> None:
    listener, bus = await listening()

    await tell(bus, "small", task("v1.0.0", 0.2, 0.4), task("v1.0.1", 1.0, None))
    await tell(bus, "other", task("v1.0.0", 0.0))
    await tell(bus, "small", task("v1.0.0", 0.6))

    scores = {version: (score.count, round(score.mean, 6)) for version, score in listener.scores.items()}
    assert scores == {"v1.0.0": (3, 0.4), "v1.0.1": (1, 1.0)}


async def test_other_events_and_what_cannot_be_read_are_passed_over() -> None:
    listener, bus = await listening()
    event = AdapterEvent(agent_id="small", event="standing", revision=1, primary="v1.0.0")

    await bus.broadcast(events_topic("small"), event.encode(), type=AdapterEvent.TYPE, message_id="e")
    for body in (b"", b"[]", b'{"agent_id": "small", "tasks": 7}'):
        await bus.broadcast(events_topic("small"), body, type=AgentRewards.TYPE, message_id="r")

    assert listener.scores == {}
