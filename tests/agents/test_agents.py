"""Agents that do real work in a folder: what they did there is checked, and what of it was recorded."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.agents.conftest import Note
from tests.agents.driving import Driven, Turn, call, drive
from tests.agents.jobs import (
    ADD,
    BROKEN,
    MENDED,
    TASK,
    Job,
    added,
    aider,
    git,
    langgraph,
    mended,
    mini_swe_agent,
    openai_agents,
    smolagents,
)

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

SUM = "The sum is 42; it is in c.txt."
Drive = Callable[..., Awaitable[Driven]]


@pytest.fixture(params=["whole", "stream"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def driven(folder: Path, python: Callable[[str], Path], note: Note) -> Drive:
    """Does a job in the folder, with these words of a model."""

    async def run(job: Job, turns: Sequence[Turn], way: str = "whole") -> Driven:
        job.lay_out(folder)
        command = job.command(python(job.package), way)
        found = await drive(command, turns, folder, environment=job.settings)
        note(job.name, found)
        found.assert_exact()
        return found

    return run


def adding() -> list[Turn]:
    """It reads both files at once, writes the sum and says it."""
    both = "\n".join(call("read_file", path=path) for path in ("a.txt", "b.txt"))
    return [
        Turn(ADD, f"I read both.\n{both}"),
        Turn("25", call("write_file", path="c.txt", text="42")),
        Turn("2 characters are in c.txt", SUM),
    ]


@pytest.mark.parametrize("api", ["responses", "chat_completions"])
async def test_the_openai_agents_sdk(api: str, way: str, folder: Path, driven: Drive) -> None:
    found = await driven(openai_agents(api), adding(), way)

    assert found.printed == SUM and added(folder, SUM)
    assert (found.segments, found.breaks) == (1, {})


async def test_a_graph_of_langgraph(way: str, folder: Path, driven: Drive) -> None:
    found = await driven(langgraph(), adding(), way)

    assert found.printed.endswith(SUM) and added(folder, SUM)  # behind what else was streamed
    assert (found.segments, found.breaks) == (1, {})


async def test_smolagents_by_tool_calls(way: str, folder: Path, driven: Drive) -> None:
    """It asks for a call in each answer (`tool_choice: required`), and writes calls into its own history as text."""
    turns = [
        Turn(ADD, "\n".join(call("read_file", path=path) for path in ("a.txt", "b.txt"))),
        Turn("25", call("write_file", path="c.txt", text="42")),
        Turn("2 characters are in c.txt", call("final_answer", answer=SUM)),
    ]
    found = await driven(smolagents("ToolCallingAgent"), turns, way)

    assert found.printed.endswith(SUM) and added(folder, SUM)  # behind what it streamed
    assert (found.segments, found.breaks) == (3, {"rewritten": 2})


@pytest.mark.parametrize(("more", "broken"), [((), {"rewritten": 1}), (("linear",), {})], ids=["as it is", "linear"])
async def test_smolagents_by_code(
    more: tuple[str, ...], broken: dict[str, int], way: str, folder: Path, driven: Drive
) -> None:
    """It stops the model at `</code>`, which it puts back, and adds what it ran to the answer, unless told not to."""
    turns = [
        Turn(ADD, "I read both.\n<code>\nprint(int(read_file('a.txt')) + int(read_file('b.txt')))\n</code>"),
        Turn("42", f"I write it.\n<code>\nwrite_file('c.txt', '42')\nfinal_answer({SUM!r})\n</code>"),
    ]
    found = await driven(smolagents("CodeAgent", *more), turns, way)

    assert found.printed.endswith(SUM) and added(folder, SUM)
    assert (found.segments, found.breaks) == (1 + len(broken), broken)


def assert_mended(folder: Path) -> None:
    assert mended(folder, "")
    ran = subprocess.run(["python3", "check.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.stdout == "all is well\n", ran.stderr


MENDING = (
    (TASK, "I run the check first.", "python3 check.py"),
    ("AssertionError", "The index is one too high.", "cat middle.py"),
    ("len(values) // 2 + 1", "I take the one off.", "sed -i 's| // 2 + 1| // 2|' middle.py && python3 check.py"),
    ("all is well", "It is mended.", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
)


def without_tools(said: str, command: str) -> str:
    return f"{said}\n\n```mswea_bash_command\n{command}\n```"


def with_tools(said: str, command: str) -> str:
    return f"{said}\n{call('bash', command=command)}"


@pytest.mark.parametrize("form", ["litellm", "litellm_textbased"])
async def test_mini_swe_agent(form: str, folder: Path, driven: Drive) -> None:
    """It works by tool calls, and by commands in its text."""
    says = with_tools if form == "litellm" else without_tools
    found = await driven(mini_swe_agent(form), [Turn(heard, says(said, typed)) for heard, said, typed in MENDING])

    assert "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in found.printed
    assert_mended(folder)
    assert (found.segments, found.breaks) == (1, {})


BLUNDER = BROKEN.replace("+ 1", "- 1")


def block(was: str, will_be: str) -> str:
    """An edit of middle.py as Aider's format `diff` has it."""
    return f"middle.py\n```python\n<<<<<<< SEARCH\n{was}=======\n{will_be}>>>>>>> REPLACE\n```\n"


def listing(was: str, will_be: str) -> str:
    """As its format `whole` has it."""
    return f"middle.py\n```\n{will_be}```\n"


@pytest.mark.parametrize("edit_format", ["diff", "whole"])
async def test_aider(edit_format: str, way: str, folder: Path, driven: Drive) -> None:
    """It edits by its own format, commits with a message that it asks the model for, runs the check, tells the model
    what that said, and so on until all is well. It writes the files' contents anew into each request."""
    edit = block if edit_format == "diff" else listing
    turns = [
        Turn(TASK, f"The index is wrong.\n\n{edit(BROKEN, BLUNDER)}"),
        Turn("one-line commit message", "fix: Try another index"),
        Turn("AssertionError", f"It was one too high, no more.\n\n{edit(BLUNDER, MENDED)}"),
        Turn("one-line commit message", "fix: Mend the index"),
    ]
    found = await driven(aider(edit_format), turns, way)

    assert found.printed.count("Applied edit to middle.py") == 2
    assert_mended(folder)
    assert git(folder, "log", "--format=%s").splitlines() == [
        "fix: Mend the index",
        "fix: Try another index",
        "begun",
    ]
    assert found.breaks == {"parallel": 1, "rewritten": 2}
