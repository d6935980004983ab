"""An agent hears what its answers were worth."""

from __future__ import annotations

from schemas import Response, Reward
from schemas.response import Sample
from schemas.reward import SampleScore
from services.agent.rewards import RewardListener
from services.bus import Delivery
from services.memory_bus import MemoryBus
from services.topology import REWARDS, fleet_topology


def reward(agent_id: str, version: str, *scores: float | None) -> bytes:
    samples = tuple(Sample(text="x") for _ in scores)
    response = Response(task_id="t", response="x", agent_id=agent_id, samples=samples, adapter_version=version)
    given = tuple(
        SampleScore(score=None, status="timeout") if score is None else SampleScore(score=score) for score in scores
    )
    return Reward(task_id="t", scoring_agent_id="judge", scores=given, scored=response).encode()


async def test_the_running_score_is_the_mean_of_all_scored_samples_by_version() -> None:
    bus = MemoryBus(fleet_topology(("small", "other")))
    await bus.start()
    listener = RewardListener("small", bus)
    await listener.start()

    for body in (
        reward("small", "v1.0.0", 0.2, 0.4),
        reward("small", "v1.0.1", 1.0, None),
        reward("other", "v1.0.0", 0.0),
        reward("small", "v1.0.0", 0.6),
    ):
        await bus.publish(REWARDS, body, type=Reward.TYPE, message_id="r")

    scores = {version: (score.count, round(score.mean, 6)) for version, score in listener.scores.items()}
    assert scores == {"v1.0.0": (3, 0.4), "v1.0.1": (1, 1.0)}


def test_what_is_no_whole_reward_is_passed_over() -> None:
    listener = RewardListener("small", MemoryBus(fleet_topology(("small",))))

    for body in (b"", b"[]", b'{"scores": 7}', b'{"task_id": "t", "score": 1, "scoring_agent_id": "them"}'):
        listener.hear(Delivery(REWARDS, body))

    assert listener.scores == {}
