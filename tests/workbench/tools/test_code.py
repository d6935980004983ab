"""Code run, checked and measured in the sandbox: Python and JavaScript here, and what is read of the other tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workbench.tools.world import SECRET, Case, World, bad, good, hold, hostile
from workbench.tools.code import find_ruff, read_gofmt, read_node, read_ruff, read_rustc, read_vet
from workbench.tools.sandboxed import Ran

ADDING = "import sys\nprint(sum(int(one) for one in sys.stdin.read().split()), *sys.argv[1:])\n"
READS = "import pathlib\nfor path in {paths!r}:\n    try:\n        print(pathlib.Path(path).read_text())\n    except OSError as error:\n        print('REFUSED', error)\nopen('left', 'w').write('x')\n"  # noqa: E501


def program(world: World) -> None:
    world.write("src/add.py", ADDING)


def faulty(world: World) -> None:
    world.write("a.py", "import os\nif True print(1)\n")
    world.write("b.py", "import os\n\nx = 1\n")
    world.write("ok.mjs", "export const x = 1;\n")
    world.write("bad.js", "function ( {\n")


def reading(world: World) -> None:
    world.write("reads.py", READS.format(paths=[str(world.outside / "secret.txt"), "/proc/1/environ"]))


def nothing_left(world: World) -> None:
    assert not (world.root / "left").exists()


def has(**expected: Any) -> Any:
    return lambda content: all(content.get(name) == value for name, value in expected.items())


def found_there(content: dict[str, Any]) -> bool:
    places = {(one["path"], one["rule"]) for one in content["findings"]}
    return not content["ok"] and {("a.py", "invalid-syntax"), ("b.py", "F401"), ("bad.js", "syntax")} <= places


def measured(content: dict[str, Any]) -> bool:
    slow = next(row for row in content["top"] if row["function"].endswith(" slow"))
    return bool(slow["calls"] == 3 and content["peak_mb"] > 1 and content["cpu_seconds"] > 0)


SLOW = "def slow():\n    return sum(range(100000))\n\nfor _ in range(3):\n    slow()\n"
FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
CASES = (
    good(
        "code_run",
        {"file": "src/add.py", "arguments": ["a", "b"], "stdin": "1 2 3"},
        has(exit_code=0, stdout="6 a b\n", stderr=""),
        before=program,
    ),
    good(
        "code_run",
        {"snippet": "console.log(1 + 1)", "language": "javascript"},
        has(exit_code=0, stdout="2\n"),
        name="snippet",
    ),
    good("code_run", {"snippet": "raise SystemExit(3)", "language": "python"}, has(exit_code=3), name="exit"),
    good(
        "code_run",
        {"snippet": "import signal\nsignal.pause()", "language": "python", "seconds": 0.2},
        has(exit_code=-9, says="it was ended after 0.2 s"),
        name="late",
    ),
    bad("code_run", {}, "arguments: either a file or a snippet"),
    bad("code_run", {"snippet": "x"}, "arguments: name the language", name="language"),
    bad("code_run", {"file": "gone.py"}, "not_found", name="gone"),
    hostile("code_run", {"file": "reads.py"}, None, before=reading, after=nothing_left),
    hostile("code_run", {"file": "../outside/secret.txt", "language": "python"}, "arguments", name="path"),
    hostile("code_run", {"snippet": FORKS, "language": "python", "seconds": 1}, None, name="forks"),
    good("code_profile", {"snippet": SLOW, "language": "python"}, measured),
    bad("code_profile", {"file": "x.py", "snippet": "x"}, "arguments: either a file or a snippet"),
    hostile("code_profile", {"file": "reads.py"}, None, before=reading, after=nothing_left),
    good("code_check", {}, found_there, before=faulty),
    good("code_check", {"paths": ["ok.mjs"]}, has(ok=True, findings=[], checked=["ok.mjs"]), before=faulty, name="one"),
    bad("code_check", {}, "not_found: there is no Python"),
    hostile("code_check", {"paths": ["../outside/secret.txt"]}, "arguments"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_call(case: Case, sandboxed: World) -> None:
    result = await hold(case, sandboxed)

    assert SECRET not in result.text


async def test_a_language_without_its_tool_is_named_and_not_called_right(sandboxed: World) -> None:
    sandboxed.write("a.go", "package main\n")

    result = await sandboxed.call("code_check")

    if result.content.get("missing"):
        assert (result.content["ok"], result.content["checked"]) == (False, [])
    else:
        assert result.content["checked"] == ["a.go"]


def ran(stdout: str = "", stderr: str = "") -> Ran:
    return Ran(1, stdout, stderr)


RUSTC = {
    "message": "unused variable: `x`",
    "level": "warning",
    "code": {"code": "unused_variables"},
    "spans": [{"is_primary": True, "file_name": "a.rs", "line_start": 2}],
}
RUFF = {"filename": "/w/tree/a.py", "location": {"row": 3}, "code": "F401", "message": "unused import"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (read_ruff(ran(json.dumps(RUFF))), [("a.py", 3, "F401")]),
        (read_node(ran(stderr="/w/tree/x/b.js:1\nfunction (\n\nSyntaxError: no\n")), [("x/b.js", 1, "syntax")]),
        (read_gofmt(ran("a.go\n", "b.go:2:3: expected ';'\n")), [("a.go", None, "gofmt"), ("b.go", 2, "syntax")]),
        (read_vet(ran(stderr="# x\nvet: ./a.go:4:2: wrong verb\n")), [("a.go", 4, "vet")]),
        (read_rustc(ran(stderr=f"{json.dumps(RUSTC)}\nno json\n")), [("a.rs", 2, "unused_variables")]),
    ],
)
def test_what_the_tools_print_is_read(found: Any, expected: list[Any]) -> None:
    assert [(one["path"], one["line"], one["rule"]) for one in found] == expected


def test_ruff_is_found_beside_this_python() -> None:
    assert find_ruff() is not None
