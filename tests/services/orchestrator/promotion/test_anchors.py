"""The anchors at work: taken from several versions, scored again, and what follows when the scorer moves or is back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.adapters.registry import RegistryStore
from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.decision import Distrust, Move, Trust
from schemas.records.interaction import Interaction
from schemas.records.registry import AgentAdapters
from services.orchestrator.promotion.anchors import COUNT, Anchors
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.own_tasks import OwnTasks
from tests.ratchet.adapters.making_decisions import draft

AGENT = "small"


class World:
    """A scorer with noise, whatever it makes of an answer, and the registry that hears what is decided."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = RegistryStore(folder)
        self.chance = random.Random(1)
        self.scorer = "judge@1"
        self.makes_of: Callable[[float, str], float] = lambda worth, style: worth
        self.asked = 0
        self.said: list[str] = []
        self.own = OwnTasks()
        self.arms = Arms(AGENT)
        self.anchors = self.anew()

    def anew(self) -> Anchors:
        """After a restart."""
        anchors = Anchors(self.folder, self.rescore, self.own, self, 0.05)
        anchors.start()
        return anchors

    @property
    def adapters(self) -> AgentAdapters:
        return self.store.read().agent(AGENT)

    async def distrust(self, reason: str) -> None:
        self.decide(Distrust(), reason)

    async def trust(self, reason: str) -> None:
        self.decide(Trust(), reason)

    def decide(self, move: Move, reason: str) -> None:
        self.said.append(reason)
        self.store.update(lambda _: draft(move).model_copy(update={"reason": reason}))
        self.arms.follow(self.adapters, None)

    async def rescore(self, task: Task, answer: str, arm: Callable[[int], Arm]) -> None:
        self.asked += 1
        line = self.line(task.task_id, answer, "v1.0.0", arm(self.asked))
        self.own.resolve(task.task_id, [line])

    def line(self, task_id: str, answer: str, version: str, arm: Arm) -> Interaction:
        """An answer says what it is worth, and in which style: `0.5 plain`."""
        worth, style = answer.split()
        score = self.makes_of(float(worth), style) + self.chance.gauss(0.0, 0.1)
        return Interaction.model_validate(
            {
                "task_id": task_id,
                "input": "x",
                "response": answer,
                "score": min(1.0, max(0.0, score)),
                "scoring_agent_id": self.scorer,
                "agent_id": AGENT,
                "adapter_version": version,
                "timestamp": "2031-01-01T00:00:00Z",
                "metadata": {},
                "sample": 0,
                "group_size": 1,
                "arm": arm,
                "sampling": {"n": 1, "temperature": 1.0, "max_tokens": 8},
                "latencies": dict.fromkeys(("queue_s", "generate_s", "score_queue_s", "score_s", "total_s"), 0.1),
            }
        )

    def traffic(self, version: str = "v1.0.0", style: str = "plain", count: int = COUNT) -> None:
        for number in range(count):
            answer = f"{0.1 + 0.8 * number / (COUNT - 1):.3f} {style}"
            task = Task(task_id=f"{version}/{number}", input="x")
            self.anchors.take_closed([self.line(task.task_id, answer, version, Arm(sequence=number))], task)

    async def checks(self, count: int) -> int | None:
        """Which of them decided something; None if none did."""
        for number in range(1, count + 1):
            before = len(self.said)
            await self.anchors.check()
            if len(self.said) > before:
                return number
        return None

    @property
    def saved(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / AGENT / "anchors.jsonl").read_text().splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.traffic()
    return world


def plus(shift: float, only: str | None = None) -> Callable[[float, str], float]:
    return lambda worth, style: worth + (shift if only in (None, style) else 0.0)


def test_tasks_that_are_kept_apart_are_no_anchors_and_no_prompts_of_the_gate(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(COUNT):
        task = Task(task_id=f"tenant:acme/{number}", input="x", kept_apart=True)
        world.anchors.take_closed([world.line(task.task_id, "0.5 plain", "v1.0.0", Arm(sequence=number))], task)
    assert world.anchors.tasks == []

    world.traffic()
    assert {one.task_id.partition("/")[0] for one in world.anchors.tasks} == {"v1.0.0"}


async def test_noise_alone_ends_nothing(world: World) -> None:
    assert await world.checks(60) is None
    assert world.adapters.distrusted is None


async def test_the_first_check_takes_references_and_each_later_one_scores_each_once(world: World) -> None:
    await world.checks(1)
    assert world.asked == 9 * COUNT
    assert all(len(one["scores"]) == 8 for one in world.saved)  # type: ignore[arg-type]
    await world.checks(1)
    assert world.asked == 10 * COUNT


async def test_a_drift_is_decided_once_and_its_end_too(world: World) -> None:
    await world.checks(3)
    world.makes_of = plus(0.12)
    assert (await world.checks(3) or 9) <= 3
    assert "the same 16 answers score +0.1" in world.said[0]
    # then it is not decided again and again, also not after a restart
    world.anchors = world.anew()
    assert await world.checks(10) is None
    assert world.adapters.distrusted is not None
    # and it ends by itself when the scorer is back
    world.makes_of = plus(0.0)
    assert (await world.checks(6) or 9) <= 6
    assert "the scorer is back" in world.said[1]
    assert world.adapters.distrusted is None
    assert await world.checks(20) is None


async def test_a_scorer_that_polarises_is_told(world: World) -> None:
    await world.checks(2)
    world.makes_of = lambda worth, style: 0.5 + 2.0 * (worth - 0.5)
    assert (await world.checks(4) or 9) <= 4
    assert "polarised: good answers score higher and bad ones lower" in world.said[0]


async def test_a_new_measure_ends_the_pause_with_new_references(world: World) -> None:
    await world.checks(2)
    world.makes_of = plus(-0.15)
    assert await world.checks(4) is not None
    # when an operator says that the judge was changed on purpose
    world.decide(Trust(anchor_anew=True), "a new rubric")
    assert await world.checks(20) is None
    assert {one["anchored"] for one in world.saved} == {world.adapters.anchored} != {0}
    # then the way back to the old scores is a drift
    world.makes_of = plus(0.0)
    assert (await world.checks(4) or 9) <= 4


async def test_another_scorer_is_a_new_measure_by_itself(world: World) -> None:
    await world.checks(2)
    world.makes_of = plus(-0.15)
    assert await world.checks(4) is not None
    world.scorer = "judge@2"
    assert await world.checks(1) == 1
    assert "the scorer is now judge@2" in world.said[-1]
    assert {one["scorer"] for one in world.saved} == {"judge@2"}
    assert await world.checks(10) is None


async def test_a_favour_for_a_candidates_style_is_seen_by_its_own_answers(world: World) -> None:
    await world.checks(2)
    world.traffic("v1.0.1", "bullets", COUNT - 1)
    assert {one["version"] for one in world.saved} == {"v1.0.0"}
    world.traffic("v1.0.1", "bullets", 1)
    await world.checks(2)
    world.makes_of = plus(0.2, only="bullets")
    assert (await world.checks(4) or 9) <= 4
    assert "the same 16 answers of v1.0.1 score +0.1" in world.said[0]


async def test_the_first_versions_anchors_stay_and_the_newest_two_change(world: World) -> None:
    first = world.anchors.tasks
    for number in (1, 2, 3):
        world.traffic(f"v1.0.{number}", "plain")
    world.traffic("v1.0.1", "plain")  # rolled back to: no newer than what is there
    kept = [one["version"] for one in world.saved]
    assert kept == ["v1.0.0"] * COUNT + ["v1.0.2"] * COUNT + ["v1.0.3"] * COUNT
    assert world.anchors.tasks == first
    # and none is taken by a scorer that is not trusted
    world.decide(Distrust(), "it moved")
    world.traffic("v1.0.4", "plain")
    assert [one["version"] for one in world.saved] == kept


async def test_anchors_of_an_older_version_get_their_references_at_the_next_check(world: World) -> None:
    path = world.folder / AGENT / "anchors.jsonl"
    old = [{name: one[name] for name in ("task", "answer", "score", "scorer")} for one in world.saved]
    path.write_text("".join(json.dumps(one) + "\n" for one in old))
    world.anchors = world.anew()
    await world.checks(1)
    assert all(len(one["scores"]) == 8 for one in world.saved)  # type: ignore[arg-type]


def test_anchors_that_the_disk_does_not_take_are_saved_with_the_next_answer(tmp_path: Path) -> None:
    blocked = tmp_path / "adapters"
    blocked.mkdir()
    world = World(blocked)
    (blocked / AGENT).write_text("a file where the folder should be")

    world.traffic()
    assert len(world.anchors.tasks) == COUNT

    (blocked / AGENT).unlink()
    world.traffic(count=1)

    assert len(world.saved) == COUNT
    assert world.anew().tasks == world.anchors.tasks
