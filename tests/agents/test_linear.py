"""Agents that go on and on from what was said are one segment, whatever is said: 1,000 rollouts of each Python client.

The tokenizer is SmolLM2's own (`ratchet models fetch smollm2`), the template Qwen 2.5's, which writes tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from ratchet.conversation.template import ChatTemplate
from ratchet.models.known import known_folder
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import model_environment
from ratchet.rollouts.recording import Ran, record
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.errors import EngineError
from tests.agents.conftest import Note, cannot_be_had
from tests.agents.driving import PROGRAMS, Recorded
from tests.agents.environments import NODE, PYTHON
from tests.agents.odd_speech import STOP, OddModel, odd_text
from tests.agents.smollm2 import CONTEXT, NAME, VOCABULARY, spoken
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine

pytestmark = [pytest.mark.agents, pytest.mark.timeout(3600)]

CLIENTS = {
    "openai_loop.py chat": (f"`{PYTHON['openai'][0]}`, linear", 1000),
    "anthropic_loop.py": (f"`{PYTHON['anthropic'][0]}`, linear", 1000),
    "openai_loop.py responses": (f"`{PYTHON['openai'][0]}`, responses, linear", 200),
    "openai_loop.mjs": (f"npm `{NODE[0]}`, linear", 200),
    "anthropic_loop.mjs": (f"npm `{NODE[1]}`, linear", 200),
}
"""What each is in the table, and how many rollouts it makes."""
MOST_LINE = 1 << 20
ODDITIES = {
    "calls": lambda turn: bool(turn.tool_calls),
    "calls in text": lambda turn: "<tool_call>" in turn.content,
    "thoughts": lambda turn: bool(turn.reasoning),
    "silence": lambda turn: not turn.content and not turn.tool_calls,
    "halves of characters": lambda turn: "\ufffd" in turn.content,
    "control tokens": lambda turn: "<|im_start|>" in turn.content,
    "arguments that are no object": lambda turn: any(call.arguments[:1] != "{" for call in turn.tool_calls),
}
"""Each is among what is said, so that it could have broken something."""


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    try:
        known_folder(NAME)
    except EngineError as missing:
        cannot_be_had(str(missing))
    return spoken("qwen2_5")


@pytest.fixture
def command(request: pytest.FixtureRequest) -> tuple[list[str], dict[str, str]]:
    """It, and what it finds in its environment."""
    name, *arguments = request.node.callspec.params["driven"].split()
    if name.endswith(".py"):
        interpreter = request.getfixturevalue("python")(name.partition("_")[0])
        return [str(interpreter), str(PROGRAMS / name), *arguments], {}
    node, modules = request.getfixturevalue("node")
    return [str(node), str(PROGRAMS / name), *arguments], {"NODE_PATH": str(modules)}


class Linear:
    """A program that makes one rollout after the other, each with a key of its own."""

    def __init__(self, process: asyncio.subprocess.Process, recorder: Recorder, template: ChatTemplate) -> None:
        self._process = process
        self._recorder = recorder
        self._template = template

    async def rollout(self, seed: str) -> Recorded:
        dice = random.Random(seed)
        said = OddModel(dice, self._template.codec, self._template.ends, VOCABULARY)
        engine = ScriptedEngine(said, CONTEXT)
        rollout = RecordedRollout(self._template, engine, model="odd")
        turns = list(_turns(dice))

        async def run(rollout: RecordedRollout) -> Ran:
            assert self._process.stdin is not None and self._process.stdout is not None
            with self._recorder.key_for(rollout) as key:
                self._process.stdin.write(json.dumps({"key": key, "turns": turns}).encode() + b"\n")
                line = await self._process.stdout.readline()
            assert line, f"the program ended in the rollout {seed}"
            return Ran(json.loads(line)["answer"], "finished")

        sample, _ = await record(rollout, "linear", run)
        found = Recorded(sample, engine)
        assert len(engine.seen) == len(turns), seed
        return found


def _turns(dice: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(dice.randint(2, 7)):
        most = dice.randint(1, 30) if dice.random() < 0.2 else 400
        stop = [STOP] if dice.random() < 0.3 else []
        yield {"text": odd_text(dice), "stream": dice.random() < 0.5, "max_tokens": most, "stop": stop}


@asynccontextmanager
async def linear(
    command: Sequence[str], environment: dict[str, str], template: ChatTemplate, home: Path
) -> AsyncIterator[Linear]:
    recorder = Recorder()
    own = {"PATH": os.environ["PATH"], "HOME": str(home)} | environment
    async with recorder.serving() as base_url:
        process = await asyncio.create_subprocess_exec(
            *command, env=own | model_environment(base_url, "none"), stdin=PIPE, stdout=PIPE, limit=MOST_LINE
        )
        try:
            yield Linear(process, recorder, template)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.mark.parametrize("driven", CLIENTS)
async def test_a_linear_agent_is_one_segment_whatever_is_said(
    driven: str, command: tuple[list[str], dict[str, str]], template: ChatTemplate, folder: Path, note: Note
) -> None:
    name, count = CLIENTS[driven]
    segments, odd, broken = Counter[int](), Counter[str](), dict[str, dict[str, int]]()
    async with linear(*command, template, folder) as program:
        for number in range(count):
            seed = f"{driven} {number}"
            found = await program.rollout(seed)
            note(name, found)
            segments[found.segments] += 1
            turns = [turn for one in found.sample.segments or () for turn in one.turns if turn.span is not None]
            odd.update(what for what, there in ODDITIES.items() if any(map(there, turns)))
            broken |= {seed: found.breaks} if found.breaks else {}
            assert found.exact == found.calls == len(found.engine.seen), seed

    assert (segments, broken) == ({1: count}, {})
    assert set(odd) == set(ODDITIES), odd
