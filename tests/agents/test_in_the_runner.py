"""Agents as they are, run by the real runner: each in its sandbox, on a task with a workspace and hidden tests.

The engine says what a good model would. What came of it is judged by the scorer `tests`, on a pristine copy with the
patch; what the recorder kept is held against what the engine sampled.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ratchet.programs.declared import Program, declared_programs
from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import NotInstalled
from ratchet.rollouts.tool_audit import verify_lines
from schemas.messages.response import Sample
from schemas.messages.work import Sampling, Work
from schemas.messages.workspace import Workspace
from services.agent.engines.engine import IdsRequest, TokenPiece
from services.agent.engines.scripted import EchoEngine
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest
from tests.agents.conftest import cannot_be_had
from tests.agents.driving import Script, Turn, call
from tests.agents.environments import ROOT
from tests.programs import REPOSITORY
from tests.ratchet.conversation.speakers import codec, source_of
from tests.ratchet.rollouts.exactness import exact_calls
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
from tests.services.cli.verify.workspace_tasks import WRONG, task
from tests.services.runner.conftest import MakeHouse, make_house, make_work

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]
__all__ = ["make_house", "make_work"]

CONTEXT = 65_536
TASK = "tests/test_price.py fails. Mend shop/price.py."
VISIBLE = (
    "import unittest\nfrom shop.price import total\n\n\nclass Price(unittest.TestCase):\n"
    "    def test_total(self):\n        self.assertEqual(total(8, 9), 72)\n"
)
FILES = WRONG["python"] | {"tests/__init__.py": "", "tests/test_price.py": VISIBLE}
BROKEN = FILES["shop/price.py"]
MENDED = BROKEN.replace("price + count", "price * count")
DONE = "I mended shop/price.py: the total is the price times the count."
LOOK = call("file_read", path="shop/price.py")
MEND = call("file_replace", path="shop/price.py", old="price + count", new="price * count")
BY_TOOLS = [
    Turn(TASK, f"I look at it.\n{LOOK}"),
    Turn("return price + count", f"It adds where it has to multiply.\n{MEND}"),
]


def typed(said: str, command: str) -> str:
    return f"{said}\n\n```mswea_bash_command\n{command}\n```"


TURNS = {
    "tool-agent": [*BY_TOOLS, Turn("", DONE)],
    "aider": [Turn(TASK, f"It adds where it has to multiply.\n\nshop/price.py\n```\n{MENDED}```\n")],
    "mini-swe-agent": [
        Turn(TASK, typed("I run the test first.", "python3 -m unittest tests.test_price")),
        Turn("AssertionError", typed("I look at it.", "cat shop/price.py")),
        Turn("price + count", typed("It adds.", "sed -i 's/price + count/price * count/' shop/price.py")),
        Turn("", typed("Once more.", "python3 -m unittest tests.test_price")),
        Turn("OK", typed("It is mended.", f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo '{DONE}'")),
    ],
    "coding-team": [Turn(TASK, f"It adds.\n\n```path=shop/price.py\n{MENDED}```\n"), Turn("You review", "APPROVE")],
    "openai-agents": [*BY_TOOLS, Turn("", call("test_run")), Turn('"passed":', DONE)],
    "langgraph": [*BY_TOOLS, Turn("", call("test_run")), Turn('"passed":', DONE)],
}
FILE_OF = {name: REPOSITORY / "examples" / name / "programs.toml" for name in ("openai-agents", "langgraph")}


class Played(EchoEngine):
    """An agent's engine whose tokens a script says."""

    identity = "scripted"
    context = CONTEXT

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__()
        self.script = Script(turns)
        self.says = ScriptedEngine(self.script, CONTEXT)

    async def generate_ids(self, request: IdsRequest) -> AsyncGenerator[TokenPiece, None]:
        most = request.sampling.max_tokens
        said = 0
        async for token in self.says.sample(request.prompt_ids, most):
            said += 1
            yield TokenPiece(0, (token.id,), (token.logprob,))
        yield TokenPiece(0, (), (), "length" if said == most else "stop")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE with Qwen 2.5's template, as a model's folder has it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    made = PreTrainedTokenizerFast(
        tokenizer_object=codec().tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=source_of("qwen2_5"),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    made.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def program() -> Callable[[str], Program]:
    """As it is declared, with what it requires installed."""

    def found(name: str) -> Program:
        declared = declared_programs(FILE_OF.get(name))[name]
        environments = Environments(ROOT)
        try:
            for wanted in declared.environments(name).values():
                environments.install(*wanted, lambda told: None)
        except NotInstalled as missing:
            cannot_be_had(str(missing))
        return declared.with_requirements(name, environments, "")

    return found


async def score(sample: Sample, tmp_path: Path) -> list[float | None]:
    """Of what it left, and of nothing, by the task's hidden tests."""
    strategy = build_strategy(ScorerSettings.read(scorer="tests", workspace_cache=tmp_path / "scored"))
    await strategy.start()
    try:
        given = task("python", with_suite=False)
        answers = (Answer(sample.text, artifact=sample.artifact), Answer(DONE))
        request = ScoringRequest("t-1", TASK, answers, criteria=given["criteria"], workspace=Workspace(files=FILES))
        return [one.score for one in await strategy.score(request)]
    finally:
        await strategy.stop()


@pytest.mark.parametrize("name", TURNS)
async def test_an_agent_as_it_is_mends_a_repository_in_its_sandbox(
    name: str,
    program: Callable[[str], Program],
    make_house: MakeHouse,
    make_work: Callable[..., Work],
    tmp_path: Path,
) -> None:
    engine = Played(TURNS[name])
    work = make_work(input=TASK, workspace=Workspace(files=FILES), sampling=Sampling(n=1, max_tokens=4000))
    async with make_house({name: program(name)}, engine) as house:
        (sample,) = (await house.answered(work)).samples

    told: Any = (sample.status, sample.text[-2000:], engine.script.left)
    assert (sample.status, engine.script.left) == ("finished", []), told
    assert DONE in sample.text or name in ("aider", "coding-team"), told
    assert sample.artifact is not None
    assert [line for line in sample.artifact.patch.splitlines() if line[:1] in "+-"] == [
        "--- a/shop/price.py",
        "+++ b/shop/price.py",
        "-    return price + count",
        "+    return price * count",
    ]
    if name not in ("aider", "mini-swe-agent"):
        assert sample.tool_audit is not None and sample.tool_audit.changed == ("shop/price.py",)
        verify_lines(sample.tool_audit.lines, sample.tool_audit.count, sample.tool_audit.sha256)
    assert await score(sample, tmp_path) == [1.0, 0.0]
    segments = sample.segments or ()
    assert exact_calls(engine.says, segments) == len(engine.says.seen) == len(TURNS[name])
    assert len(segments) == (2 if name == "coding-team" else 1)
    sys.stdout.write(f"{name}: {sample.usage}\n")
