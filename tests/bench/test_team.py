"""The team's bench: what its roles are shown, and that its live test is the product's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.team.promoting import is_promoted
from bench.team.world import COPIES, LOSES, Rollout, Turn, Vector, World, demonstration
from demos.toy.sort_task import LENGTH, SortTask
from schemas.messages.response import Sample


def test_demonstrations_of_both_roles_are_as_long_and_the_mender_sees_no_letter_that_was_lost() -> None:
    rng = random.Random(1)
    tasks = [demonstration(rng) for _ in range(2000)]
    mended = [task for task in tasks if task.input.startswith("mend: ")]

    assert {len(task.input) for task in tasks} == {len("mend: ") + LENGTH}
    assert {len(task.answer) for task in tasks} == {LENGTH}
    assert all(sorted(task.answer) == sorted(task.input.removeprefix("mend: ")) for task in mended)
    assert 0 < LOSES < 1 and 0 < COPIES < 1


def test_a_rollout_is_worth_the_share_of_the_places_that_are_right() -> None:
    def turn(text: str) -> Turn:
        return Turn(prompt=cast(Any, ()), sample=Sample(text=text))

    rollout = Rollout(SortTask("sort: edcba", "abcde"), {"writer": turn("abced"), "mender": turn("abc")})

    assert (rollout.worth("writer"), rollout.worth()) == (0.6, 0.6)


class Played:
    """A world in which a vector's rollouts have a mean worth."""

    seed = 1

    def __init__(self, means: dict[str, float]) -> None:
        self.means = means

    def tasks(self, count: int, number: int) -> list[int]:
        return list(range(count))

    def rollouts(self, vector: Vector, tasks: Sequence[int], group: int, number: int) -> list[list[Any]]:
        mean, rng = self.means[str(vector["mender"])], random.Random(f"{vector} {number}")
        worths = (sum(rng.random() < mean for _ in range(LENGTH)) / LENGTH for _ in tasks)
        return [[SimpleNamespace(worth=lambda worth=worth: worth)] for worth in worths]


@pytest.mark.parametrize(("mean", "promoted"), [(0.8, True), (0.4, False), (0.2, False)])
def test_a_role_is_promoted_where_the_teams_outcome_is_proved_better(mean: float, promoted: bool) -> None:
    world = Played({"None": 0.4, "new": mean})
    present, candidate = cast(Vector, {"writer": None, "mender": None}), cast(Vector, {"writer": None, "mender": "new"})

    assert is_promoted(cast(World, world), present, candidate, 0) is promoted
