"""The 5 operations on a project's tests, in the sandbox, with four runners; and what is read of a fifth."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.workbench.tools.world import Case, World, bad, good, hold, hostile
from workbench.tools.project_tests import detect, read_cargo, read_go, read_pytest, read_tap, read_unittest


def project(world: World) -> None:
    world.write("calc.py", "def add(a, b):\n    return a - b\n")
    world.write(
        "tests/test_calc.py",
        "import sys\nsys.path.insert(0, '.')\nfrom calc import add\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_zero():\n    assert add(0, 0) == 0\n",
    )


def passing(world: World) -> None:
    project(world)
    world.write("calc.py", "def add(a, b):\n    return a + b\n")


ESCAPE = """
import os, pathlib, socket, subprocess

def test_escape():
    for path in ("{outside}/secret.txt", "{root}/calc.py"):
        try: print(pathlib.Path(path).read_text())
        except OSError as error: print("REFUSED", error)
        try: pathlib.Path(path).write_text("overwritten")
        except OSError as error: print("REFUSED", error)
    try: socket.create_connection(("127.0.0.1", 9), timeout=1)
    except OSError as error: print("REFUSED", error)
    pathlib.Path("left-behind").write_text("x")
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    assert not os.environ.get("HOME", "").startswith("/root")
    assert False, "show it"
"""


def escaping(world: World) -> None:
    project(world)
    world.write("tests/test_escape.py", ESCAPE.format(outside=world.outside, root=world.root))


def hanging(world: World) -> None:
    world.write("test_hangs.py", "import time\n\n\ndef test_hangs():\n    time.sleep(600)\n")  # simulated


def flooding(world: World) -> None:
    world.write("test_floods.py", "def test_floods():\n    print('x' * 3_000_000)\n    assert False\n")


def untouched(world: World) -> None:
    assert (world.root / "calc.py").read_text() == "def add(a, b):\n    return a - b\n"
    assert not (world.root / "left-behind").exists()


def short(answer: dict[str, Any]) -> bool:
    return len(answer["output"]) < 14_000 and answer["failed"] == ["test_floods.py::test_floods"]


def run_before(world: World) -> None:
    project(world)
    world.toolbox.workshop.failed_tests["pytest"] = [ADD]


ADD, ZERO = "tests/test_calc.py::test_add", "tests/test_calc.py::test_zero"
CASES = [
    good("test_list", {}, {"runner": "pytest", "tests": [ADD, ZERO]}, before=project),
    bad("test_list", {}, "not_found: no tests are found"),
    hostile("test_list", {}, None, before=escaping, after=untouched),
    good("test_run", {}, {"ok": False, "passed": 1, "failed": [ADD]}, before=project, after=untouched),
    good("test_run", {"paths": ["tests"]}, {"ok": True, "passed": 2, "failed": []}, name="passing", before=passing),
    bad("test_run", {"runner": "go"}, "not_found: no tests for go", before=project),
    hostile("test_run", {"paths": ["../outside"]}, "arguments: leads up", name="path", before=project),
    hostile("test_run", {"paths": ["--rootdir=/"]}, None, name="option", before=project),
    hostile("test_run", {}, "limit: ended after 5 s", name="hangs", before=hanging),
    good("test_run", {}, short, name="floods", before=flooding),
    good("test_run_one", {"name": ZERO}, {"ok": True, "passed": 1, "failed": []}, before=project),
    bad("test_run_one", {"name": "tests/test_calc.py::test_none"}, "not_found: ran no test", before=project),
    hostile("test_run_one", {"name": "-p evil"}, "arguments: name", before=project),
    hostile(
        "test_run_one",
        {"name": "tests/test_escape.py::test_escape"},
        None,
        name="escape",
        before=escaping,
        after=untouched,
    ),
    good("test_run_failed", {}, {"failed": [ADD]}, before=run_before),
    bad("test_run_failed", {}, "conflict: test_run first", before=project),
    hostile("test_run_failed", {"runner": "sh -c id"}, "arguments: runner", before=project),
    good("test_timing", {}, lambda it: ADD in {one["test"] for one in it["slowest"]}, before=project),
    bad("test_timing", {"runner": "cargo"}, "not_found: no tests for cargo", before=project),
    hostile("test_timing", {}, "limit: ended after 5 s", before=hanging),
]


@pytest.fixture
async def quick_world(tmp_path: Path, sandbox: Any) -> Any:
    """Runs end after five seconds."""
    made = World(tmp_path, sandbox, tests={"seconds": 5.0})
    yield made
    await made.toolbox.close()


@pytest.mark.parametrize("case", [one for one in CASES if "hangs" in str(one) or one.before is hanging], ids=str)
async def test_a_call_that_does_not_end(case: Case, quick_world: World) -> None:
    await hold(case, quick_world)


@pytest.mark.parametrize("case", [one for one in CASES if one.before is not hanging], ids=str)
async def test_a_call(case: Case, sandboxed: World) -> None:
    await hold(case, sandboxed)


async def test_what_failed_is_run_again(sandboxed: World) -> None:
    project(sandboxed)
    await sandboxed.call("test_run")

    again = await sandboxed.call("test_run_failed")
    assert (again.content["failed"], again.content["passed"]) == ([ADD], 0)

    passing(sandboxed)
    mended = await sandboxed.call("test_run_failed")
    assert (mended.content["ok"], mended.content["passed"]) == (True, 1)
    assert (await sandboxed.call("test_run_failed")).content["error"] == "conflict"


async def test_an_escape_is_refused_what_it_tries(sandboxed: World) -> None:
    escaping(sandboxed)
    ran = await sandboxed.call("test_run_one", name="tests/test_escape.py::test_escape")

    assert ran.content["failed"] == ["tests/test_escape.py::test_escape"]
    assert ran.content["output"].count("REFUSED") == 5
    untouched(sandboxed)
    sandboxed.assert_nothing_got_out(ran)


NODE = """
const test = require("node:test");
const assert = require("node:assert");
test("adds (really)", () => assert.equal(1 + 1, 2));
test("fails", () => assert.equal(1, 2));
"""
GO = """package x

import "testing"

func TestAdds(t *testing.T) {}

func TestFails(t *testing.T) { t.Fatal("no") }
"""
UNITTEST = """
import unittest

class T(unittest.TestCase):
    def test_a(self):
        pass

    def test_b(self):
        self.fail()
"""


@pytest.mark.parametrize(
    ("runner", "files", "passes", "fails"),
    [
        ("node", {"package.json": "{}", "x.test.js": NODE}, "adds (really)", "fails"),
        ("go", {"go.mod": "module x\n\ngo 1.19\n", "x_test.go": GO}, "TestAdds", "TestFails"),
        ("unittest", {"test_x.py": UNITTEST}, "test_x.T.test_a", "test_x.T.test_b"),
    ],
)
async def test_other_runners(runner: str, files: dict[str, str], passes: str, fails: str, sandboxed: World) -> None:
    program = {"unittest": "python3"}.get(runner, runner)
    if not shutil.which(program, path="/usr/bin"):
        pytest.skip(f"{program} is not there: sh infra/setup-toolchains.sh installs it")
    for path, content in files.items():
        sandboxed.write(path, content)

    listed = await sandboxed.call("test_list", runner=runner)
    assert set(listed.content["tests"]) == {passes, fails}
    ran = await sandboxed.call("test_run", runner=runner)
    assert (ran.content["ok"], ran.content["passed"], ran.content["failed"]) == (False, 1, [fails]), ran.text
    one = await sandboxed.call("test_run_one", runner=runner, name=passes)
    assert (one.content["ok"], one.content["passed"], one.content["failed"]) == (True, 1, []), one.text


def test_what_runners_print_is_read() -> None:
    pytest_said = (
        "a.py::test_x PASSED [ 50%]\na.py::test_y[a b] FAILED [100%]\n"
        "0.01s call     a.py::test_x\n0.02s setup    a.py::test_x\n"
    )
    read = read_pytest(pytest_said)
    assert (read.passed, read.failed, round(read.seconds["a.py::test_x"], 3)) == (1, ["a.py::test_y[a b]"], 0.03)
    assert read_unittest("test_a (m.T) ... ok\ntest_b (m.T.test_b) ... FAIL\n").failed == ["m.T.test_b"]
    assert read_tap("ok 1 - a\n  duration_ms: 5\nnot ok 2 - b # TODO later\nnot ok 3 - c\n").failed == ["c"]
    assert read_go('{"Action":"fail","Package":"x"}\nnonsense\n').failed == ["x (it does not build)"]
    cargo = read_cargo("test a::b ... ok\ntest c ... FAILED\ntest d ... ignored\ne: test\n")
    assert (cargo.passed, cargo.failed, cargo.skipped, cargo.names) == (1, ["c"], 1, ["a::b", "c", "d", "e"])


@pytest.mark.parametrize(
    ("paths", "texts", "found"),
    [
        (["test_a.py"], {}, ["pytest"]),
        (["a.py"], {"pyproject.toml": "[tool.pytest.ini_options]"}, ["pytest"]),
        (["x/b.test.mjs"], {}, ["node"]),
        (["go.mod", "Cargo.toml", "package.json"], {}, ["node", "go", "cargo"]),
        (["README.md"], {}, []),
    ],
)
def test_the_runner_fits_the_project(paths: list[str], texts: dict[str, str], found: list[str]) -> None:
    assert detect(paths, texts) == found
