"""Agents that do real work in a folder: what they did there is checked, and what of it was recorded."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.conftest import Note
from tests.agents.driving import PROGRAMS, Turn, call, drive
from tests.agents.environments import PYTHON

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

Python = Callable[[str], Path]
ADD = "Add what a.txt and b.txt hold, and write the sum to c.txt."
SUM = "The sum is 42; it is in c.txt."


@pytest.fixture(params=["whole", "stream"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def numbers(folder: Path) -> Path:
    """A folder with two files to be added."""
    (folder / "a.txt").write_text("17")
    (folder / "b.txt").write_text("25")
    return folder


def adding() -> list[Turn]:
    """It reads both files at once, writes the sum and says it."""
    both = "\n".join(call("read_file", path=path) for path in ("a.txt", "b.txt"))
    return [
        Turn(ADD, f"I read both.\n{both}"),
        Turn("25", call("write_file", path="c.txt", text="42")),
        Turn("2 characters are in c.txt", SUM),
    ]


@pytest.mark.parametrize("api", ["responses", "chat_completions"])
async def test_the_openai_agents_sdk(api: str, way: str, numbers: Path, python: Python, note: Note) -> None:
    command = (python("openai-agents"), PROGRAMS / "openai_agent.py", api, way)
    driven = await drive(command, adding(), numbers)
    note(f"`{PYTHON['openai-agents'][0]}`, {api.replace('_', ' ')}", driven)

    assert driven.printed == SUM
    assert (numbers / "c.txt").read_text() == "42"
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


async def test_a_graph_of_langgraph(way: str, numbers: Path, python: Python, note: Note) -> None:
    driven = await drive((python("langgraph"), PROGRAMS / "langgraph_agent.py", way), adding(), numbers)
    note(" with ".join(f"`{pin}`" for pin in PYTHON["langgraph"][:2]), driven)

    assert driven.printed.endswith(SUM)  # behind what else was streamed
    assert (numbers / "c.txt").read_text() == "42"
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


async def test_smolagents_by_tool_calls(way: str, numbers: Path, python: Python, note: Note) -> None:
    """It asks for a call in each answer (`tool_choice: required`), and writes calls into its own history as text."""
    turns = [
        Turn(ADD, "\n".join(call("read_file", path=path) for path in ("a.txt", "b.txt"))),
        Turn("25", call("write_file", path="c.txt", text="42")),
        Turn("2 characters are in c.txt", call("final_answer", answer=SUM)),
    ]
    command = (python("smolagents"), PROGRAMS / "smol_agent.py", "ToolCallingAgent", way)
    driven = await drive(command, turns, numbers)
    note(f"`{PYTHON['smolagents'][0]}`, ToolCallingAgent", driven)

    assert driven.printed.endswith(SUM)  # behind what it streamed
    assert (numbers / "c.txt").read_text() == "42"
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (3, {"rewritten": 2})


async def test_smolagents_by_code(way: str, numbers: Path, python: Python, note: Note) -> None:
    """It stops the model at `</code>`, and adds what it ran to the answer."""
    turns = [
        Turn(ADD, "I read both.\n<code>\nprint(int(read_file('a.txt')) + int(read_file('b.txt')))\n</code>"),
        Turn("42", f"I write it.\n<code>\nwrite_file('c.txt', '42')\nfinal_answer({SUM!r})\n</code>"),
    ]
    command = (python("smolagents"), PROGRAMS / "smol_agent.py", "CodeAgent", way)
    driven = await drive(command, turns, numbers)
    note(f"`{PYTHON['smolagents'][0]}`, CodeAgent", driven)

    assert driven.printed.endswith(SUM)
    assert (numbers / "c.txt").read_text() == "42"
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (2, {"rewritten": 1})


BROKEN = "def middle(values):\n    return sorted(values)[len(values) // 2 + 1]\n"
MENDED = BROKEN.replace(" + 1", "")
CHECK = "from middle import middle\n\nassert middle([3, 1, 2]) == 2\nprint('all is well')\n"
TASK = "check.py fails. Mend middle.py."


@pytest.fixture
def broken(folder: Path) -> Path:
    """A folder with a module that its check fails on."""
    (folder / "middle.py").write_text(BROKEN)
    (folder / "check.py").write_text(CHECK)
    return folder


def assert_mended(folder: Path) -> None:
    assert (folder / "middle.py").read_text() == MENDED
    ran = subprocess.run(["python3", "check.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.stdout == "all is well\n", ran.stderr


MENDING = (
    (TASK, "I run the check first.", "python3 check.py"),
    ("AssertionError", "The index is one too high.", "cat middle.py"),
    ("len(values) // 2 + 1", "I take the one off.", "sed -i 's| // 2 + 1| // 2|' middle.py && python3 check.py"),
    ("all is well", "It is mended.", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
)
MINI = ("-m", "openai/any", "-y", "--exit-immediately", "-o", "trajectory.json", "-t", TASK)
MINI_SETTINGS = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}


def without_tools(said: str, command: str) -> str:
    return f"{said}\n\n```mswea_bash_command\n{command}\n```"


def with_tools(said: str, command: str) -> str:
    return f"{said}\n{call('bash', command=command)}"


@pytest.mark.parametrize("form", ["litellm", "litellm_textbased"])
async def test_mini_swe_agent(form: str, broken: Path, python: Python, note: Note) -> None:
    """By tool calls, and by commands in its text."""
    says, config = (with_tools, "mini.yaml") if form == "litellm" else (without_tools, "mini_textbased.yaml")
    turns = [Turn(heard, says(said, command)) for heard, said, command in MENDING]
    mini = python("mini-swe-agent").parent / "mini"
    driven = await drive((mini, "-c", config, "--model-class", form, *MINI), turns, broken, environment=MINI_SETTINGS)
    note(f"`{PYTHON['mini-swe-agent'][0]}`, {config}", driven)

    assert "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in driven.printed
    assert_mended(broken)
    driven.assert_exact()
    assert (driven.segments, driven.breaks) == (1, {})


AIDER = (
    "--yes-always",
    "--no-check-update",
    "--analytics-disable",
    "--no-show-release-notes",
    "--no-show-model-warnings",
)
BLUNDER = BROKEN.replace("+ 1", "- 1")


def block(was: str, will_be: str) -> str:
    """An edit of middle.py as Aider's format `diff` has it."""
    return f"middle.py\n```python\n<<<<<<< SEARCH\n{was}=======\n{will_be}>>>>>>> REPLACE\n```\n"


def listing(was: str, will_be: str) -> str:
    """As its format `whole` has it."""
    return f"middle.py\n```\n{will_be}```\n"


@pytest.fixture
def repository(broken: Path) -> Path:
    git(broken, "init", "-q")
    git(broken, "config", "user.name", "Somebody")
    git(broken, "config", "user.email", "somebody@example.org")
    git(broken, "add", ".")
    git(broken, "commit", "-qm", "begun")
    return broken


def git(folder: Path, *typed: str) -> str:
    return subprocess.run(["git", *typed], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("edit_format", ["diff", "whole"])
async def test_aider(edit_format: str, way: str, repository: Path, python: Python, note: Note) -> None:
    """It edits by its own format, commits with a message that it asks the model for, runs the check, tells the model
    what that said, and so on until all is well. It writes the files' contents anew into each request."""
    edit = block if edit_format == "diff" else listing
    turns = [
        Turn(TASK, f"The index is wrong.\n\n{edit(BROKEN, BLUNDER)}"),
        Turn("one-line commit message", "fix: Try another index"),
        Turn("AssertionError", f"It was one too high, no more.\n\n{edit(BLUNDER, MENDED)}"),
        Turn("one-line commit message", "fix: Mend the index"),
    ]
    typed = ("--model", "openai/any", "--edit-format", edit_format, "--stream" if way == "stream" else "--no-stream")
    typed += ("--auto-test", "--test-cmd", "python3 check.py", "--message", TASK, "middle.py", "check.py")
    driven = await drive((python("aider").parent / "aider", *AIDER, *typed), turns, repository)
    note(f"`{PYTHON['aider'][0]}`, {edit_format}", driven)

    assert driven.printed.count("Applied edit to middle.py") == 2
    assert_mended(repository)
    assert git(repository, "log", "--format=%s").splitlines() == [
        "fix: Mend the index",
        "fix: Try another index",
        "begun",
    ]
    driven.assert_exact()
    assert driven.breaks == {"parallel": 1, "rewritten": 2}
