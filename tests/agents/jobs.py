"""Jobs for third-party programs, in a folder or in a talk, with a check of each that suits any model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agents.driving import PROGRAMS
from tests.agents.environments import NODE, PYTHON

Command = list[str | Path]

ADD = "Add what a.txt and b.txt hold, and write the sum to c.txt."
BROKEN = "def middle(values):\n    return sorted(values)[len(values) // 2 + 1]\n"
MENDED = BROKEN.replace(" + 1", "")
CHECK = "from middle import middle\n\nassert middle([3, 1, 2]) == 2\nprint('all is well')\n"
TASK = "check.py fails. Mend middle.py."
MINI = ("-m", "openai/any", "-y", "--exit-immediately", "-o", "trajectory.json", "-t", TASK)
MINI_SETTINGS = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
AIDER = (
    "--yes-always",
    "--no-check-update",
    "--analytics-disable",
    "--no-show-release-notes",
    "--no-show-model-warnings",
)
TALK = (
    "What is in the red box? Look into it.",
    "There is a coin in the red box.",
    "So what is in the red box? Say it in a word.",
)
"""The turns of a talk; the second is the result of a tool, if it was called."""
TALK_TOKENS = 60


def numbers(folder: Path) -> None:
    """Write two files to be added."""
    (folder / "a.txt").write_text("17")
    (folder / "b.txt").write_text("25")


def added(folder: Path, printed: str) -> bool:
    sum_file = folder / "c.txt"
    return sum_file.is_file() and sum_file.read_text(errors="replace").strip() == "42"


def broken(folder: Path) -> None:
    """Write a module that fails its check."""
    (folder / "middle.py").write_text(BROKEN)
    (folder / "check.py").write_text(CHECK)


def repository(folder: Path) -> None:
    broken(folder)
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "begun")


def mended(folder: Path, printed: str) -> bool:
    """Tell whether the module is as it should be; its check is not run, as it would run foreign code."""
    return (folder / "middle.py").read_text(errors="replace") == MENDED


def nothing(folder: Path) -> None:
    """Leave the folder empty."""


def talked(folder: Path, printed: str) -> bool:
    try:
        return "coin" in json.loads(printed)["answer"].lower()
    except (ValueError, KeyError):
        return False


def git(folder: Path, *typed: str) -> str:
    return subprocess.run(["git", *typed], cwd=folder, capture_output=True, text=True, check=True).stdout


def talk(way: str) -> str:
    """Return the stdin of a loop."""
    said: list[dict[str, Any]] = [
        {"text": text, "stream": way == "stream", "max_tokens": TALK_TOKENS, "stop": []} for text in TALK
    ]
    return json.dumps({"turns": said}) + "\n"


@dataclass(frozen=True)
class Job:
    """`package` names the environment, or is `node`. `command`, `stdin` depend on how the program asks: whole or by a
    stream. `tools`: it needs a template that writes tool calls."""

    name: str
    package: str
    command: Callable[[Path, str], Command]
    lay_out: Callable[[Path], None]
    done: Callable[[Path, str], bool]
    tools: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    stdin: Callable[[str], str] = lambda way: ""


def pins(package: str, count: int = 1) -> str:
    return " with ".join(f"`{pin}`" for pin in PYTHON[package][:count])


def openai_agents(api: str) -> Job:
    def command(python: Path, way: str) -> Command:
        return [python, PROGRAMS / "openai_agent.py", api, way]

    name = f"{pins('openai-agents')}, {api.replace('_', ' ')}"
    return Job(name, "openai-agents", command, numbers, added, tools=True)


def langgraph() -> Job:
    def command(python: Path, way: str) -> Command:
        return [python, PROGRAMS / "langgraph_agent.py", way]

    return Job(pins("langgraph", 2), "langgraph", command, numbers, added, tools=True)


def smolagents(kind: str, *more: str) -> Job:
    def command(python: Path, way: str) -> Command:
        return [python, PROGRAMS / "smol_agent.py", kind, way, *more]

    name = ", ".join((pins("smolagents"), kind, *more))
    return Job(name, "smolagents", command, numbers, added, tools=kind == "ToolCallingAgent")


def mini_swe_agent(form: str) -> Job:
    """Return a job of mini-swe-agent, which never streams."""
    config = "mini.yaml" if form == "litellm" else "mini_textbased.yaml"

    def command(python: Path, way: str) -> Command:
        return [python.parent / "mini", "-c", config, "--model-class", form, *MINI]

    name = f"{pins('mini-swe-agent')}, {config}"
    return Job(name, "mini-swe-agent", command, broken, mended, tools=form == "litellm", settings=MINI_SETTINGS)


def aider(edit_format: str) -> Job:
    def command(python: Path, way: str) -> Command:
        asks = "--stream" if way == "stream" else "--no-stream"
        typed: tuple[str, ...] = ("--model", "openai/any", "--edit-format", edit_format, asks)
        typed += ("--auto-test", "--test-cmd", "python3 check.py", "--message", TASK, "middle.py", "check.py")
        return [python.parent / "aider", *AIDER, *typed]

    return Job(f"{pins('aider')}, {edit_format}", "aider", command, repository, mended, tools=False)


def loop(program: str, *arguments: str) -> Job:
    """Return the job of a client, in a talk with a tool."""
    node = program.endswith(".mjs")
    package = program.partition("_")[0]

    def command(interpreter: Path, way: str) -> Command:
        return [interpreter, PROGRAMS / program, *arguments]

    pin = f"npm `{NODE[package != 'openai']}`" if node else pins(package)
    name = ", ".join((pin, *arguments))
    return Job(name, "node" if node else package, command, nothing, talked, tools=True, stdin=talk)


JOBS: Sequence[Job] = (
    loop("openai_loop.py", "chat"),
    loop("openai_loop.py", "responses"),
    loop("openai_loop.mjs"),
    loop("anthropic_loop.py"),
    loop("anthropic_loop.mjs"),
    openai_agents("responses"),
    openai_agents("chat_completions"),
    langgraph(),
    mini_swe_agent("litellm"),
    mini_swe_agent("litellm_textbased"),
    smolagents("ToolCallingAgent"),
    smolagents("CodeAgent"),
    smolagents("CodeAgent", "linear"),
    aider("whole"),
    aider("diff"),
)
