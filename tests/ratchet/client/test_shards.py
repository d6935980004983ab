"""Tasks are divided among fleets by session, or by themselves where they have none."""

from __future__ import annotations

from collections import Counter

import pytest

from ratchet.client.shards import ShardedLink, shard_of
from ratchet.service.errors import FleetError
from schemas import Feedback, Task

RED_AND_BLUE = ("red.", "blue.")


class Link:
    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.closed = False

    async def send(self, task: Task) -> None:
        self.tasks.append(task)

    async def close(self) -> None:
        self.closed = True


def test_units_are_divided_evenly_and_always_alike() -> None:
    found = Counter(shard_of(f"task-{number}", RED_AND_BLUE) for number in range(10_000))

    assert all(4_800 < count < 5_200 for count in found.values())
    assert [shard_of(unit, RED_AND_BLUE) for unit in ("task-1", "task-2", "task-3")] == ["red.", "blue.", "blue."]


async def test_a_session_stays_in_one_fleet() -> None:
    links = {namespace: Link() for namespace in RED_AND_BLUE}
    link = ShardedLink(links)
    for session in range(20):
        for number in range(5):
            await link.send(Task(task_id=f"{session}-{number}", input="x", session_id=f"session-{session}"))
    await link.close()

    of_fleets = [{task.session_id for task in one.tasks} for one in links.values()]
    assert of_fleets[0].isdisjoint(of_fleets[1]) and all(of_fleets)
    assert sum(len(one.tasks) for one in links.values()) == 100
    assert all(one.closed for one in links.values())


async def test_feedback_is_for_the_fleet_that_has_the_task() -> None:
    link = ShardedLink({namespace: Link() for namespace in RED_AND_BLUE})

    with pytest.raises(FleetError, match="fleet that has the task"):
        await link.send(Feedback(task_id="t", score=1.0))
