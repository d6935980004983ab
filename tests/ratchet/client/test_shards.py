"""Tasks are divided among fleets by session, or by themselves where they have none."""

from __future__ import annotations

from collections import Counter

import pytest

from ratchet.client.fleet import fleet_of, shard_of
from ratchet.service.errors import FleetError
from schemas.messages.feedback import Feedback
from schemas.messages.task import Task

RED_AND_BLUE = ("red.", "blue.")


def test_units_are_divided_evenly_and_always_alike() -> None:
    found = Counter(shard_of(f"task-{number}", RED_AND_BLUE) for number in range(10_000))

    assert all(4_800 < count < 5_200 for count in found.values())
    assert [shard_of(unit, RED_AND_BLUE) for unit in ("task-1", "task-2", "task-3")] == ["red.", "blue.", "blue."]


def test_a_session_stays_in_one_fleet() -> None:
    tasks = [
        Task(task_id=f"{session}-{number}", input="x", session_id=f"session-{session}")
        for session in range(20)
        for number in range(5)
    ]

    sessions = {namespace: set[str | None]() for namespace in RED_AND_BLUE}
    for task in tasks:
        sessions[fleet_of(task, RED_AND_BLUE)].add(task.session_id)

    assert sessions["red."].isdisjoint(sessions["blue."]) and all(sessions.values())


def test_feedback_is_for_the_fleet_that_has_the_task() -> None:
    feedback = Feedback(task_id="t", score=1.0)

    assert fleet_of(feedback, ["red."]) == "red."
    with pytest.raises(FleetError, match="fleet that has the task"):
        fleet_of(feedback, RED_AND_BLUE)
