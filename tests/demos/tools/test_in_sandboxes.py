"""The tools demo in sandboxes: the agent as a program, and what it left, scored as it is where it tells it itself."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from demos.tools import in_sandbox
from demos.tools.agent import MOST_CALLS
from demos.tools.in_sandboxes import SCORER, changed_by, message_fields, outcome_of, programs
from demos.toy.recipe import FLAWLESS
from demos.toy.tools.task import ToolTask, is_done, outcome, tool_task
from demos.toy.tools.teacher import demonstration
from demos.toy.tools.tokenizer import END, READ, TEXT_CALLED
from ratchet.logs.rows import AnswerRow, ArtifactRow
from ratchet.programs.declared import read_programs
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import Program, run_with
from schemas.messages.response import Sample
from schemas.messages.workspace import Artifact
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest, Strategy
from tests.demos.toy.test_tool_agent import TOKENIZER, rollout_of, saying
from tests.demos.toy.test_tool_model import sampled_turns
from workbench.sandbox import bubblewrap

TASK = tool_task(random.Random(7), "held_out")
OTHER = next(name for name in "uvwxyz" if name != TASK.target)
FIRST = TASK.operands[0]


def patch(**holding: str) -> str:
    """As git writes it: of the task's workspace, with files that hold something else now, without a last line's end."""
    return "".join(_diff(name, TASK.files.get(name), held) for name, held in sorted(holding.items()))


def _diff(name: str, was: str | None, now: str) -> str:
    ended = "\\ No newline at end of file\n"
    if was is None:
        return (
            f"diff --git a/{name} b/{name}\nnew file mode 100644\nindex 0000000..1111111\n--- /dev/null\n+++ b/{name}\n"
            f"@@ -0,0 +1 @@\n+{now}\n{ended}"
        )
    return (
        f"diff --git a/{name} b/{name}\nindex 1111111..2222222 100644\n--- a/{name}\n+++ b/{name}\n"
        f"@@ -1 +1 @@\n-{was}\n{ended}+{now}\n{ended}"
    )


LEFT: dict[str, tuple[dict[str, str], str]] = {
    "all right": ({TASK.target: TASK.sum}, TASK.sum),
    "said something else": ({TASK.target: TASK.sum}, "7"),
    "the wrong file": ({OTHER: TASK.sum}, TASK.sum),
    "the wrong sum": ({TASK.target: "7"}, "7"),
    "the wrong sum, and the right one said": ({TASK.target: "7"}, TASK.sum),
    "all wrong": ({OTHER: "7"}, "7"),
    "nothing": ({}, ""),
}
"""What changed, and what was said."""


@pytest.fixture
async def scorers() -> AsyncIterator[tuple[Strategy, Strategy]]:
    """In sandboxes, and where the agent tells its own outcome."""
    assert bubblewrap.missing_programs() == [], "sh infra/setup-debian.sh installs it"
    found = [build_strategy(ScorerSettings.read(scorer=scorer)) for scorer in (SCORER, "verifier:json")]
    for scorer in found:
        await scorer.start()
    yield found[0], found[1]
    for scorer in found:
        await scorer.stop()


async def test_what_is_left_earns_what_the_agents_own_word_of_it_does(scorers: tuple[Strategy, Strategy]) -> None:
    answers = tuple(Answer(said, artifact=Artifact(patch=patch(**changed))) for changed, said in LEFT.values())
    told = tuple(Answer(outcome(changed, said)) for changed, said in LEFT.values())
    sandboxed, itself = scorers
    scores, same = await asyncio.gather(
        sandboxed.score(ScoringRequest("t", TASK.input, answers, **message_fields(TASK))),
        itself.score(ScoringRequest("t", TASK.input, told, reference=TASK.answer)),
    )
    found = {how: score.score for how, score in zip(LEFT, scores, strict=True)}
    assert found == pytest.approx({how: score.score for how, score in zip(LEFT, same, strict=True)})
    assert (found["all right"], found["all wrong"], found["nothing"]) == pytest.approx((1.0, 0.0, 0.0))

    spoilt = Answer(TASK.sum, artifact=Artifact(patch=patch(**{TASK.target: TASK.sum, FIRST: "7"})))
    (score,) = await sandboxed.score(ScoringRequest("t", TASK.input, (spoilt,), **message_fields(TASK)))
    assert score.score == pytest.approx(2 / 3)  # a file that was to be read is no longer as it was


def row(said: str, changed: Mapping[str, str] | None) -> AnswerRow:
    artifact = None if changed is None else ArtifactRow(patch(**changed))
    return AnswerRow(task_id="t", response=said, artifact=artifact)


def test_the_hidden_verifier_goes_by_the_files_that_the_sandbox_held() -> None:
    done = {how: is_done(TASK, outcome_of(row(said, changed))) for how, (changed, said) in LEFT.items()}
    assert [how for how, is_it in done.items() if is_it] == ["all right"]
    assert not is_done(TASK, outcome_of(row(TASK.sum, {TASK.target: TASK.sum, FIRST: "7"})))
    assert not is_done(TASK, outcome_of(row("", None)))


def test_what_changed_is_read_off_a_patch() -> None:
    assert changed_by("") == {}
    assert changed_by(patch(x="25", a="7")) == {"a": "7", "x": "25"}
    lines = patch(x="25").replace("@@ -0,0 +1 @@\n+25\n", "@@ -0,0 +1,2 @@\n+25\n+++ b\n")
    assert changed_by(lines) == {"x": "25\n++ b"}
    empty = "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n"
    assert changed_by(empty) == {"x": ""}


def test_the_program_is_declared_whole_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "programs.toml").write_text(programs("small"))
    declared = read_programs(tmp_path / "programs.toml", ("small",))
    program = declared[declared.by_agent["small"][0]]
    source, offered = program.data.values()
    assert source == Path(in_sandbox.__file__).read_text()
    assert json.loads(offered)["most_calls"] == program.limits.calls == MOST_CALLS
    assert set(program.command[3:]) == program.data.keys()
    assert program.binds == {}


async def ran(task: ToolTask, turns: list[str], folder: Path) -> Sample:
    """The program as the runner starts it, but for the sandbox: in a folder with the task's files."""
    folder.mkdir()
    for name, held in task.files.items():
        (folder / name).write_text(held)
    (folder.parent / "programs.toml").write_text(programs("small"))
    program = read_programs(folder.parent / "programs.toml", ("small",))["tool-agent"]
    for path, text in program.data.items():
        (folder.parent / Path(path).name).write_text(text)
    places = [str(folder.parent / Path(part).name) if part in program.data else part for part in program.command[1:]]
    script = "import os, sys; os.chdir(sys.argv[1]); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    command = (sys.executable, "-c", script, str(folder), *places)
    recorder, rollout = Recorder(), rollout_of(saying(turns))
    async with recorder.serving() as base_url:
        return await run_with(recorder, base_url, rollout, Program(command, stdin=task.input), timeout_s=60)


async def test_the_program_uses_its_tools_on_the_files_it_finds_and_is_recorded_token_for_token(tmp_path: Path) -> None:
    text = demonstration(TASK, FLAWLESS, random.Random(1))
    sample = await ran(TASK, sampled_turns(text), tmp_path / "workspace")

    assert (sample.text, sample.status) == (TASK.sum, "finished")
    left = {path.name: path.read_text() for path in (tmp_path / "workspace").iterdir()}
    assert left == TASK.files | {TASK.target: TASK.sum}
    assert sample.segments is not None
    (segment,) = sample.segments
    assert TOKENIZER.decode([*segment.prompt_ids, *segment.completion_ids]) == text


async def test_blanked_tools_bring_nothing_and_a_model_that_never_ends_is_ended(tmp_path: Path) -> None:
    turns = [f"{READ}{name}{TEXT_CALLED}{END}" for name in ("a", "nothing", "/etc", "a") * 5]
    for blanked in (False, True):
        sample = await ran(replace(TASK, blanked=blanked), turns, tmp_path / f"workspace-{blanked}")
        assert (sample.text, sample.status) == ("", "finished")
        assert sample.segments is not None
        brought = [turn.content for turn in sample.segments[0].turns if turn.role == "tool"]
        assert brought[:3] == (["?", "?", "?"] if blanked else [TASK.files["a"], "?", "?"])
        assert sample.usage is not None and sample.usage.calls == MOST_CALLS


def test_it_needs_no_more_of_python_than_starts_in_a_moment() -> None:
    """A rollout begins with this: what is imported is paid for thousands of times."""
    code = f"import sys; sys.argv = ['x']; exec(compile(open({in_sandbox.__file__!r}).read(), 'x', 'exec'), {{}})"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert {"asyncio", "urllib.request", "pydantic", "httpx", "ratchet"}.isdisjoint(run.stdout.split())
