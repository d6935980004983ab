"""Libraries that ask for objects, unchanged: they are held to a grammar, which is recorded, and get what they asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.conftest import Note
from tests.agents.driving import PROGRAMS, Driven, Turn, call, drive
from tests.agents.environments import NODE, PYTHON

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

ASKED, BOX = "red box", {"colour": "red", "coins": 3}
NATIVE = '{"colour": "red", "coins": 3}'
TOOLS = {"pydantic-ai": "final_result", "instructor": "Box", "langchain": "Box", "openai": "Box", "anthropic": "Box"}
"""The tool that each has the model call."""


def assert_held(driven: Driven) -> None:
    driven.assert_exact()
    (grammar,) = driven.engine.grammars
    assert grammar is not None
    (segment,) = driven.sample.segments or ()
    assert [(one.spans, one.sha256) for one in segment.grammars] == [((0,), grammar.sha256)]


@pytest.mark.parametrize("library", ["pydantic-ai", "instructor", "dspy", "langchain", "openai", "anthropic"])
async def test_an_answer_fits_the_schema_that_a_library_sends(
    library: str, folder: Path, python: Callable[[str], Path], note: Note
) -> None:
    command = (python(library), PROGRAMS / "structured.py", library, "native")
    driven = await drive(command, [Turn(ASKED, NATIVE)], folder)
    note(f"`{PYTHON[library][0]}`, schema", driven)
    assert driven.printed_json == BOX
    assert_held(driven)


@pytest.mark.parametrize("library", TOOLS)
async def test_a_tool_that_a_library_demands_is_called(
    library: str, folder: Path, python: Callable[[str], Path], note: Note
) -> None:
    command = (python(library), PROGRAMS / "structured.py", library, "tool")
    driven = await drive(command, [Turn(ASKED, call(TOOLS[library], **BOX))], folder)
    note(f"`{PYTHON[library][0]}`, tool", driven)
    assert driven.printed_json == BOX
    assert_held(driven)


@pytest.mark.parametrize("way", ["whole", "stream"])
async def test_vercels_sdk_gets_an_object(way: str, folder: Path, note: Note, node: tuple[Path, Path]) -> None:
    interpreter, modules = node
    command = (interpreter, PROGRAMS / "vercel_structured.mjs", way)
    driven = await drive(command, [Turn(ASKED, NATIVE)], folder, environment={"NODE_PATH": str(modules)})
    note(f"npm `{NODE[2]}`, object", driven)
    assert driven.printed_json == BOX
    assert_held(driven)
