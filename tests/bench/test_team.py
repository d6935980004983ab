"""The team's bench: what its roles are shown, and that its live test is the product's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.team.orders import OrderRollout, OrdersWorld
from bench.team.orders import run as run_orders
from bench.team.promoting import is_promoted
from bench.team.world import COPIES, LOSES, Rollout, Turn, Vector, World, demonstration
from demos.real.tasks import RealTask
from demos.toy.sort_task import LENGTH, SortTask
from schemas.messages.response import Sample
from schemas.messages.task import ChatMessage
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.transformers_engine import TransformersEngine


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
    units = 500

    def __init__(self, means: dict[str, float], asked_at_once: int = 500) -> None:
        self.means = means
        self.asked_at_once = asked_at_once
        self.asked = 0

    def tasks(self, count: int, number: int) -> list[int]:
        return list(range(count))

    def rollouts(self, vector: Vector, tasks: Sequence[int], group: int, number: int) -> list[list[Any]]:
        self.asked += len(tasks)
        mean, rng = self.means[str(vector["mender"])], random.Random(f"{vector} {number}")
        worths = (sum(rng.random() < mean for _ in range(LENGTH)) / LENGTH for _ in tasks)
        return [[SimpleNamespace(worth=lambda worth=worth: worth)] for worth in worths]


@pytest.mark.parametrize(("mean", "promoted"), [(0.8, True), (0.4, False), (0.2, False)])
@pytest.mark.parametrize("asked_at_once", [500, 50])
def test_a_role_is_promoted_where_the_teams_outcome_is_proved_better(
    mean: float, promoted: bool, asked_at_once: int
) -> None:
    world = Played({"None": 0.4, "new": mean}, asked_at_once)
    present, candidate = cast(Vector, {"writer": None, "mender": None}), cast(Vector, {"writer": None, "mender": "new"})

    verdict, units = is_promoted(cast(World, world), present, candidate, 0)

    assert verdict is promoted
    assert world.asked == (1000 if asked_at_once == 500 else -(-units // 50) * 50)


class PlayedEngine:
    """Each prompt gets the same ids, in a list of its own."""

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        return [Generation((Sample(text="abcde"),), (1, 2)) for _ in requests]


def test_equal_prompts_are_one_object_which_the_trainer_computes_once(tmp_path: Path) -> None:
    engine = cast(TransformersEngine, PlayedEngine())

    (one,), (other,) = World(tmp_path, 1)._ask(engine, "writer", {"writer": None}, ["a", "a"], 1)

    assert (one.prompt, list(other.prompt)) == (other.prompt, [1, 2])
    assert one.prompt is other.prompt


class PlayedOrders(OrdersWorld):
    """Each role without an adapter is right every third time; its adapter's answers are right."""

    def rollouts(self, vector: Vector, tasks: Sequence[Any], group: int, number: int) -> list[list[Rollout]]:
        def turn(role: str, task: RealTask, sample: int) -> Turn:
            right = vector[role] is not None or (len(task.text) + sample) % 3 == 0
            return Turn(cast(Any, ()), Sample(text=task.answer if right else '{"name": "Nobody"}'))

        return [
            [OrderRollout(task, {role: turn(role, task, sample) for role in self.roles}) for sample in range(group)]
            for task in tasks
        ]

    def train(self, parent: Path | None, groups: Any, parts: Sequence[str], folder: Path, alone: str) -> Path:
        assert (parent, alone) == (None, "mender")
        return folder / "adapter"


def test_each_role_of_the_team_of_orders_has_an_adapter_that_the_teams_outcome_judges(tmp_path: Path) -> None:
    steps = list(run_orders(PlayedOrders(tmp_path, 1), tmp_path / "kept"))

    assert [step["role"] for step in steps if "promoted" in step] == ["extractor", "mender"]
    assert [step["promoted"] for step in steps if "promoted" in step] == [False, True]
    assert steps[-3]["after"]["mean"] == 1.0 and steps[-3]["significant"]
    kept = PlayedOrders(tmp_path, 2)  # of another seed: its figures would be others
    assert list(run_orders(kept, tmp_path / "kept")) == steps


def test_the_mender_of_orders_sees_the_message_and_the_draft() -> None:
    world = OrdersWorld(Path("base"), 1)
    (task,) = world.tasks(1, 0)
    *_, asked = cast(Sequence[ChatMessage], world.second_prompt(task, '{"name": 1}'))

    assert asked.content == f'{task.text}\n{{"name": 1}}'
    live = {one.text for one in world.tasks(99, 500)}
    assert not live & {one.text for one in world.tasks(99, 0)}
