"""The examples that a newcomer runs, by the real runner: their programs, scripts and tasks as they lie there.

Each way that a script knows is taken once; what each is worth is asked of the scorer that the README names.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from demos.toy.tools.tokenizer import tool_tokenizer
from ratchet.programs.declared import Program, declared_programs
from ratchet.programs.shipped import inside
from schemas.messages.response import Sample
from schemas.messages.task import Task
from schemas.messages.work import Sampling, Work
from services.agent.engines.scripted import Script, ScriptedEngine
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest
from tests.packages import copy_packages
from tests.passable import passable_folder
from tests.programs import REPOSITORY
from tests.services.runner.conftest import MakeHouse

EXAMPLES = REPOSITORY / "examples"
PLAYED = EXAMPLES / "played-model"


class EachInTurn(random.Random):
    """Draws the ways there are one after the other, of each choice by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = Counter[str]()

    def choice(self, seq: Sequence[Any]) -> Any:
        self.drawn[str(seq)] += 1
        return seq[(self.drawn[str(seq)] - 1) % len(seq)]


@pytest.fixture(scope="module")
def tools_here() -> Iterator[Callable[[Program], Program]]:
    """What `ratchet programs install` would put there is copied from this process's packages, of the same Python."""
    with passable_folder() as folder:
        packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        copy_packages(folder / packages, inside.TOOLS_REQUIRE)
        (folder / "bin").mkdir()
        (folder / "bin/python").symlink_to("/usr/bin/python3")
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")

        def equipped(program: Program) -> Program:
            given = {
                "binds": {inside.TOOLS_ENVIRONMENT: folder} | inside.tools_packages() | program.binds,
                "data": inside.tools_files() | program.data,
            }
            return program.model_copy(update=given)

        yield equipped


def task_of(example: str) -> Task:
    run = subprocess.run([sys.executable, EXAMPLES / example / "task.py"], capture_output=True, text=True, check=True)
    return Task.model_validate({"task_id": example, **json.loads(run.stdout)})


async def scores(scorer: str, task: Task, samples: Sequence[Sample], cache: Path) -> list[float | None]:
    strategy = build_strategy(ScorerSettings.read(scorer=scorer, workspace_cache=cache))
    await strategy.start()
    try:
        answers = tuple(Answer(sample.text, artifact=sample.artifact) for sample in samples)
        given = {"reference": task.reference, "criteria": task.criteria, "workspace": task.workspace}
        return [one.score for one in await strategy.score(ScoringRequest("t", task.input, answers, **given))]
    finally:
        await strategy.stop()


@pytest.mark.parametrize(
    ("example", "worth"),
    [("failing-test", [0.0, 0.25, 1.0]), ("data-question", [0.0, 0.0, 1.0])],
)
async def test_what_a_newcomer_runs_ends_as_its_page_says(
    example: str,
    worth: list[float],
    tools_here: Callable[[Program], Program],
    make_house: MakeHouse,
    make_work: Callable[..., Work],
    tmp_path: Path,
) -> None:
    page = (EXAMPLES / example / "README.md").read_text()
    scorer = page.split("--scorer ")[1].split()[0]
    task = task_of(example)
    programs = declared_programs(EXAMPLES / example / "programs.toml")
    equipped = {name: tools_here(program) for name, program in programs.items()}
    engine = ScriptedEngine(Script.read(EXAMPLES / example / "script.toml"), PLAYED, EachInTurn())
    work = make_work(input=task.input, workspace=task.workspace, sampling=Sampling(n=3, max_tokens=1000))

    async with make_house(equipped, engine, runner_tokenizer=str(PLAYED)) as house:
        samples = (await house.answered(work)).samples

    assert [sample.status for sample in samples] == ["finished"] * 3, samples
    assert sorted(await scores(scorer, task, samples, tmp_path / "scored"), key=float) == pytest.approx(worth)
    assert all(len(sample.segments or ()) == 1 for sample in samples)


def test_the_played_model_has_the_tokenizer_that_its_script_makes(tmp_path: Path) -> None:
    tool_tokenizer(65_536).save_pretrained(tmp_path)

    for made in tmp_path.iterdir():
        assert (PLAYED / made.name).read_text() == made.read_text(), "python examples/played-model/make.py"
