"""How far a task and a rollout go through the code, as it runs: docs/architecture.md tells both walks."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import Task
from schemas.messages.response import Response
from schemas.messages.work import Sampling
from tests.docs.test_architecture import ROLLOUT, WALK, places
from tests.docs.walking import Walk, walking
from tests.making_work import work
from tests.services.orchestrator.house import MINUTES, answered, house, scored
from tests.services.runner.conftest import MakeHouse, make_house, python, tokenizer

__all__ = ["make_house", "tokenizer"]
MOST_RETURNS = 12


@pytest.fixture
async def task_walks(tmp_path: Path) -> dict[str, Walk]:
    """A task through the orchestrator, on the bus in memory: its Task, then its Reward with the Result."""
    async with house(tmp_path, pace=MINUTES) as opened:
        with walking() as admitted:
            await opened.submit(Task(task_id="t", input="x"))
            (assigned,) = await opened.work()
        with walking() as settled:
            await opened.reward(scored(answered(assigned, "a", "b"), 1.0, 0.0))
            await opened.results()
    return {"Task": admitted, "Reward": settled, "Result": settled}


async def test_a_task_goes_through_the_files_of_its_walk(task_walks: dict[str, Walk]) -> None:
    told = {message: [path for path, _ in places(files)] for message, files in WALK}
    for message, walk in task_walks.items():
        own = [path for path in told[message] if not path.startswith("ratchet/bus/amqp/")]  # the bus is in memory here
        assert own and [path for path in own if path not in walk.files] == [], message


async def test_a_task_enters_each_folder_once_and_at_most_once_more_by_a_callback(task_walks: dict[str, Walk]) -> None:
    for walk in task_walks.values():
        assert [chain for chain in walk.chains if max(map(chain.count, chain), default=0) > 2] == []


async def test_a_rollout_goes_through_the_files_of_its_walk_and_seldom_comes_back(make_house: MakeHouse) -> None:
    async with make_house({"says": python("print(ask(sys.stdin.read()))")}) as runner:
        with walking() as walk:
            response: Response = await runner.answered(work("t", Sampling(n=1, max_tokens=200)))

    assert [sample.status for sample in response.samples] == ["finished"]
    told = [path for _, files in ROLLOUT for path, _ in places(files)]
    assert told and [path for path in told if path not in walk.files] == []
    assert len(walk.returns) <= MOST_RETURNS, walk.returns
