"""Anchors are taken from the first scored answers; a disk that fails meanwhile costs no task its answer, nor them."""

from __future__ import annotations

from pathlib import Path

from schemas.messages.task import Task
from schemas.messages.work import Arm
from schemas.records.interaction import Interaction
from services.orchestrator.promotion.anchors import ANCHORS, COUNT, Anchors
from services.orchestrator.promotion.own_tasks import OwnTasks

EXAMPLE = Path(__file__).parents[4] / "schemas" / "examples" / "good" / "interaction.v1.json"


async def rescore(*_: object) -> None:
    raise AssertionError("nothing is scored again here")


async def drifted(_: str) -> None:
    raise AssertionError("no scorer moves here")


def anchors_in(adapters_dir: Path) -> Anchors:
    arm = Arm(sequence=0)
    return Anchors("small", adapters_dir, rescore, OwnTasks(), lambda *_: arm, drifted, tolerance=0.05)


def test_anchors_that_the_disk_does_not_take_are_saved_with_the_next_answer(tmp_path: Path) -> None:
    # given a folder that can't be made
    line, task = Interaction.decode(EXAMPLE.read_bytes()), Task(task_id="t", input="say it")
    anchors, blocked = anchors_in(tmp_path / "adapters"), tmp_path / "adapters"
    blocked.write_text("a file")
    for _ in range(COUNT):
        anchors.closed([line], task)
    assert len(anchors.tasks) == COUNT

    # when it can, and another task is answered
    blocked.unlink()
    anchors.closed([line], task)

    # then they are what a restart finds
    assert len((blocked / "small" / ANCHORS).read_bytes().splitlines()) == COUNT
    again = anchors_in(blocked)
    again.start()
    assert again.tasks == anchors.tasks
