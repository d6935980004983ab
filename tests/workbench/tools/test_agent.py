"""tool-agent: with a model that is scripted, and as a program that is recorded while it mends a failing test."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ratchet.rollouts.command import run_recorded
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.tools.agent import LEFT, NO_PLAN, AgentFailed, Message, Step, ToolAgent
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
from tests.workbench.tools.world import World
from workbench.tools.operation import Decision

REPLACE = {"path": "calc.py", "old": "a - b", "new": "a + b"}


def call(name: str, /, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c-{name}", "type": "function", "function": function}],
    }


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


class Scripted:
    """Says one thing after the other; keeps what it was asked."""

    def __init__(self, *said: Message) -> None:
        self._said = iter(said)
        self.asked: list[list[Message]] = []
        self.tools: list[set[str]] = []

    async def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Message:
        self.asked.append(list(messages))
        self.tools.append({str(tool["function"]["name"]) for tool in tools})
        return next(self._said)


def project(world: World) -> None:
    world.write("calc.py", "def add(a, b):\n    return a - b\n")
    world.write("test_calc.py", "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n")


async def test_it_acts_until_it_says_that_it_is_done_and_its_tests_pass(sandboxed: World) -> None:
    project(sandboxed)
    model = Scripted(
        call("file_read", path="calc.py"),
        call("file_replace", path="calc.py", old="a - b", new="a * b"),
        says("Done."),
        call("file_replace", path="calc.py", old="a * b", new="a + b"),
        says("Now it adds."),
    )
    finished = await ToolAgent(model, sandboxed.toolbox).work("mend add")

    assert (finished.answer, finished.turns, finished.tests_pass) == ("Now it adds.", 5, True)
    assert "return a - b" in model.asked[1][-1]["content"]
    assert "assert -1 == 3" not in model.asked[3][-1]["content"] and "test_add" in model.asked[3][-1]["content"]
    assert model.tools[0] >= {"file_read", "test_run"} and "http_get" not in model.tools[0]


async def test_it_gives_up_mending_after_so_many_times(sandboxed: World) -> None:
    project(sandboxed)
    model = Scripted(call("file_append", path="calc.py", content="# x\n"), *[says("Done.")] * 3)
    finished = await ToolAgent(model, sandboxed.toolbox, tools="file_*").work("mend add")

    assert (finished.answer, finished.tests_pass) == ("Done.", False)


async def test_it_plans_first_and_ticks_its_steps_off(world: World) -> None:
    plan = says('Here: {"steps": ["look", "tell"]}')
    ticks = [call("step_done", step=1), call("step_done", step=3), call("step_done", step=2)]
    model = Scripted(plan, call("file_list"), *ticks[:2], says("Done?"), ticks[2], says("There is nothing."))
    finished = await ToolAgent(model, world.toolbox, mode="plan").work("look around")

    assert (finished.answer, finished.turns, finished.tests_pass) == ("There is nothing.", 7, None)
    assert finished.plan == (Step("look", True), Step("tell", True))
    assert model.tools[0] == set() and "step_done" in model.tools[1]
    assert model.asked[1][-1]["content"].endswith("[ ] 1. look\n[ ] 2. tell")
    assert "[x] 1. look" in model.asked[3][-1]["content"]
    assert "name a step by its number, 1 to 2" in model.asked[4][-1]["content"]
    assert model.asked[5][-1]["content"] == LEFT.format(steps="[ ] 2. tell")


async def test_without_a_plan_that_can_be_read_it_acts(world: World) -> None:
    model = Scripted(says("1. look"), says('{"steps": "look"}'), says("There is nothing."))
    finished = await ToolAgent(model, world.toolbox, mode="plan").work("look around")

    assert (finished.answer, finished.turns, finished.plan) == ("There is nothing.", 3, ())
    assert model.asked[1][-1]["content"] == NO_PLAN
    assert "step_done" not in model.tools[2]


async def test_its_turns_are_bounded(world: World) -> None:
    model = Scripted(*[call("file_list")] * 9)
    with pytest.raises(AgentFailed, match="3 turns"):
        await ToolAgent(model, world.toolbox, turns=3).work("look around")

    assert len(model.asked) == 3


async def test_a_tool_it_was_not_given_and_one_that_is_refused_are_said(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.toolbox.policy.operations["file_write"] = Decision.ASK  # type: ignore[index]
    model = Scripted(call("http_get", url="http://x/"), call("file_write", path="x", content="y"), says("I may not."))
    finished = await ToolAgent(model, world.toolbox).work("write")

    assert finished.answer == "I may not."
    assert "there is no tool 'http_get'" in model.asked[1][-1]["content"]
    assert "consent" in model.asked[2][-1]["content"]
    await world.toolbox.close()


def tool_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def test_it_mends_a_failing_test_while_it_is_recorded(sandboxed: World) -> None:
    """Unchanged, as a program: each of its calls is one of the engine's, token for token, in one conversation."""
    from tests.ratchet.conversation.speakers import SPECIAL, codec, template

    project(sandboxed)
    answers = iter(
        (tool_call("file_read", path="calc.py"), tool_call("file_replace", **REPLACE), "It subtracted, now it adds.")
    )
    engine = ScriptedEngine(
        lambda prompt: [*codec().encode(next(answers)), SPECIAL.index("<|im_end|>")], context=32_768
    )
    rollout = RecordedRollout(template("qwen2_5"), engine, model="small")
    where = ("--root", str(sandboxed.root), "--audit", str(sandboxed.audit))
    command = [sys.executable, "-m", "ratchet.tools.agent", *where, "mend the failing test"]
    sample = await run_recorded(rollout, command, timeout_s=90)

    assert (sample.status, sample.text) == ("finished", "It subtracted, now it adds.")
    assert (sandboxed.root / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert sample.segments is not None and sample.usage is not None
    assert (len(sample.segments), sample.usage.calls, sample.usage.breaks) == (1, 3, {})
    events = [json.loads(line) for line in (sandboxed.audit / "tools" / "audit.jsonl").read_text().splitlines()]
    assert [line["tool"] for line in events if line["event"] == "called"] == ["file_read", "file_replace", "test_run"]
