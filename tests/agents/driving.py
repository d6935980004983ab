"""A third-party program in its own process, with the recorder in front of an engine that answers by a script.

The tokenizer is a real byte-level BPE, the template Qwen 2.5's, which is ChatML with tools. What the recorder keeps is
held against what the engine was given and sampled, token for token.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import Program, run_with
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.errors import PromptRefused
from schemas.messages.response import Sample, Usage
from tests.ratchet.conversation.speakers import SPECIAL, codec, template
from tests.ratchet.rollouts.exactness import Watched, exact_calls
from tests.ratchet.rollouts.scripted_engine import ScriptedEngine
from tests.waiting import until

PROGRAMS = Path(__file__).parent / "programs"
TEMPLATE = "qwen2_5"
TIMEOUT_S = 240
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
"""Settings that keep programs from asking others than the recorder."""
SHOWN = 2000
"""Characters shown of a prompt that the script has no answer to."""
IN_FOLDER = ("sh", "-c", 'cd "$1" && shift && exec "$@" 2> "$HOME/stderr"', "sh")

ASGI = Callable[[Any, Any, Any], Awaitable[None]]


class Turn(NamedTuple):
    """The model's answer to the first prompt that contains `heard`."""

    heard: str
    says: str


def call(name: str, **arguments: Any) -> str:
    """Write a tool call as the template's model does."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


class Script:
    """Answers by turns, each used once: the first one left that fits the prompt's part since the last answer."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.left = list(turns)

    def __call__(self, prompt_ids: Sequence[int]) -> list[int]:
        heard = codec().decode(prompt_ids)
        newest = heard.rpartition("<|im_start|>assistant\n")[0].rpartition("<|im_start|>assistant\n")[2]
        turn = next((turn for turn in self.left if turn.heard in newest), None)
        if turn is None:
            raise PromptRefused(f"nothing to say to: …{newest[-SHOWN:]}; left are {self.left}")
        self.left.remove(turn)
        return [*codec().encode(turn.says), SPECIAL.index("<|im_end|>")]


class LosingRecorder(Recorder):
    """A recorder whose first answer is lost, as by a failing gateway: the client gets 502."""

    def application(self) -> ASGI:  # type: ignore[override]
        application, lost = super().application(), []

        async def losing(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or lost:
                await application(scope, receive, send)
                return
            lost.append(scope["path"])
            await application(scope, receive, _nowhere)
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        return losing


async def _let_go_once_closed(engine: ScriptedEngine) -> None:
    await until(lambda: engine.closed, "the client has gone away", TIMEOUT_S)
    engine.gate.set()


async def _nowhere(message: Any) -> None:
    pass


@dataclass(frozen=True)
class Recorded:
    """A run of a program: what was recorded, and the engine that it was recorded in front of."""

    sample: Sample
    engine: Watched

    @property
    def usage(self) -> Usage:
        assert self.sample.usage is not None
        return self.sample.usage

    @property
    def breaks(self) -> dict[str, int]:
        return dict(self.usage.breaks)

    @property
    def calls(self) -> int:
        """The number of calls that the engine answered with at least a token."""
        return sum(bool(sampled) for sampled in self.engine.sampled)

    @property
    def exact(self) -> int:
        """The number of these that are recorded token for token."""
        return exact_calls(self.engine, self.sample.segments or ())

    @property
    def segments(self) -> int:
        return len(self.sample.segments or ())


@dataclass(frozen=True)
class Driven(Recorded):
    """A run with an engine that has a script."""

    engine: ScriptedEngine
    script: Script
    rollout: RecordedRollout
    stderr: str

    @property
    def printed(self) -> str:
        told = (self.sample.text[-SHOWN:], self.stderr[-SHOWN:], self.rollout.engine_trouble)
        assert self.sample.status == "finished", told
        return self.sample.text

    @property
    def printed_json(self) -> Any:
        """The printed output as JSON."""
        return json.loads(self.printed)

    def assert_exact(self) -> None:
        """Assert that the record is exact, the script is used up, and each further segment has a reason."""
        assert self.script.left == []
        assert self.exact == self.calls == len(self.engine.seen)
        assert all(segment.broke for segment in (self.sample.segments or ())[1:])
        assert self.segments <= 1 + sum(self.breaks.values())


async def drive(
    command: Sequence[str | Path],
    turns: Sequence[Turn],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    recorder: Recorder | None = None,
    context: int = 65_536,
    held: bool = False,
) -> Driven:
    """Run a program in `folder`. `held`: the engine waits behind the first token until its client has gone away."""
    script = Script(turns)
    engine = ScriptedEngine(script, context)
    rollout = RecordedRollout(template(TEMPLATE), engine, model="scripted")
    recorder = recorder or Recorder()
    async with recorder.serving() as base_url, asyncio.TaskGroup() as tasks:
        if held:
            engine.gate.clear()
            tasks.create_task(_let_go_once_closed(engine))
        program = in_folder(command, folder, environment=environment)
        sample = await run_with(recorder, base_url, rollout, program, timeout_s=TIMEOUT_S)
    return Driven(sample, engine, script, rollout, said_on_stderr(folder))


def in_folder(
    command: Sequence[str | Path], folder: Path, *, environment: Mapping[str, str] | None = None, stdin: str = ""
) -> Program:
    """Return a program that runs in the folder, with a home of its own and none of this process's settings."""
    home = _home(folder)
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    own = kept | {"HOME": str(home)} | OFFLINE | dict(environment or {})
    return Program((*IN_FOLDER, str(folder), *map(str, command)), stdin, own)


def said_on_stderr(folder: Path) -> str:
    """Return what the program in this folder wrote to stderr."""
    return (_home(folder) / "stderr").read_text(errors="replace")


def _home(folder: Path) -> Path:
    return folder.parent / f"{folder.name}-home"
