"""The program `coding-team` with roles that are scripted: every edge of its graph, and what a fault costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ratchet.programs.shipped.coding_team import (
    EDGES,
    END,
    OWN_TESTS,
    State,
    Team,
    answer_of,
    blocks_in,
    looks_easy,
    nodes_of,
)

GOOD = "```path=calc.py\ndef add(a, b):\n    return a + b\n```"
BAD = "```path=calc.py\ndef add(a, b):\n    return a - b\n```"
TESTS = f"```path={OWN_TESTS}\ndef test_add():\n    pass\n```"
EASY, HARD = "Write add.", "Refactor the parser."

Said = str | Exception


class Called:
    def __init__(self, content: dict[str, Any], ok: bool = True) -> None:
        self.ok, self.content = ok, content


class Workspace:
    """The tools: files in memory, and tests that pass where `a + b` is in calc.py. `broken`: tools that raise."""

    def __init__(self, files: Mapping[str, str] = {}, broken: frozenset[str] = frozenset()) -> None:
        self.files = dict(files)
        self.broken = broken
        self.calls: list[str] = []

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Called:
        self.calls.append(name)
        if name in self.broken:
            raise OSError(f"{name} is broken")
        path = str(arguments.get("path"))
        match name:
            case "file_find":
                return Called({"paths": sorted(self.files)})
            case "file_read":
                return Called({"text": self.files[path], "whole": True})
            case "file_write":
                self.files[path] = arguments["content"]
            case "file_remove":
                self.files.pop(path)
            case "code_check":
                return Called({"findings": []})
            case "test_list":
                return Called({}, ok=any(path.startswith("test") for path in self.files))
            case "test_run":
                ok = "a + b" in self.files.get("calc.py", "")
                if not any(path.startswith("test") for path in self.files):
                    return Called({"says": "no tests"}, ok=False)
                return Called({"ok": ok, "passed": int(ok), "failed": [] if ok else ["test_add"]})
            case "code_run":
                return Called({"exit_code": 0, "stdout": "", "stderr": ""})
        return Called({})


class Denied(Workspace):
    """A role's tools, of which its policy allows none."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Called:
        return Called({"error": "policy", "says": f"{name} is denied"}, ok=False)


class Walk:
    """The graph walked by its own table of edges, as LangGraph does."""

    def __init__(
        self,
        said: Mapping[str, list[Said]],
        tools: Workspace,
        rounds: int = 3,
        by_role: Mapping[str, Workspace] = {},
    ) -> None:
        self.said = {role: list(answers) for role, answers in said.items()}
        self.tools = tools
        self.path: list[str] = []
        self.team = Team(self.ask, tools, rounds, by_role)

    async def ask(self, role: str, instructions: str, text: str) -> str:
        answer = self.said[role].pop(0) if self.said.get(role) else "no idea"
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run(self, task: str) -> State:
        nodes, state, node = nodes_of(self.team), State(task=task), "plan"
        while node != END:
            self.path.append(node)
            state.update(await nodes[node](state))
            choose, targets = EDGES[node]
            node = choose(state)
            assert node in targets
        return state


WALKS: dict[str, tuple[str, dict[str, list[Said]], list[str]]] = {
    "easy": (EASY, {"generator": [GOOD], "executor": [TESTS]}, ["plan", "generator", "executor", "supervisor"]),
    "approved": (
        HARD,
        {"generator": [GOOD], "reviewer": ["APPROVE"], "executor": [TESTS]},
        ["plan", "generator", "reviewer", "executor", "supervisor"],
    ),
    "revised": (
        HARD,
        {"generator": [BAD, GOOD], "reviewer": ["a - b is wrong"], "executor": [TESTS]},
        ["plan", "generator", "reviewer", "generator", "executor", "supervisor"],
    ),
    "again": (
        EASY,
        {"generator": [BAD, GOOD], "executor": [TESTS], "supervisor": ["Mend the sign."]},
        ["plan", "generator", "executor", "supervisor", "generator", "executor", "supervisor"],
    ),
    "tried once more": (
        EASY,
        {"generator": [OSError("away"), GOOD], "executor": [TESTS]},
        ["plan", "generator", "executor", "supervisor"],
    ),
    "gone round": (
        EASY,
        {"generator": ["no file", "no file", GOOD], "executor": [TESTS]},
        ["plan", "generator", "supervisor", "generator", "executor", "supervisor"],
    ),
    "no reviewer": (
        HARD,
        {"generator": [GOOD], "reviewer": [OSError("away"), OSError("away")], "executor": [TESTS]},
        ["plan", "generator", "reviewer", "executor", "supervisor"],
    ),
}


@pytest.mark.parametrize(("task", "said", "path"), WALKS.values(), ids=WALKS)
async def test_a_walk(task: str, said: dict[str, list[Said]], path: list[str]) -> None:
    walk = Walk(said, Workspace())

    state = await walk.run(task)

    assert walk.path[: len(path)] == path
    assert walk.tools.files["calc.py"] == blocks_in(GOOD)["calc.py"]
    assert state["best"]["calc.py"] == walk.tools.files["calc.py"]


def test_the_walks_take_every_edge() -> None:
    taken = {pair for _, _, path in WALKS.values() for pair in zip(path, [*path[1:], END], strict=True)}

    assert {(node, target) for node, (_, targets) in EDGES.items() for target in targets} <= taken


@pytest.mark.parametrize("broken", ["file_find", "file_write", "code_check", "test_list", "test_run", "code_run"])
@pytest.mark.parametrize("task", [EASY, HARD])
async def test_no_broken_tool_ends_it(broken: str, task: str) -> None:
    walk = Walk({"generator": [GOOD] * 9, "reviewer": ["APPROVE"] * 9}, Workspace(broken=frozenset({broken})))

    await walk.run(task)

    assert walk.path.count("supervisor") <= 3


async def test_each_role_has_the_tools_of_its_own_policy() -> None:
    by_role = {"generator": Denied(), "reviewer": Denied()}
    walk = Walk({"generator": [GOOD] * 9, "reviewer": ["APPROVE"]}, Workspace(), rounds=1, by_role=by_role)

    state = await walk.run(HARD)

    assert "generator" in state["troubles"] and walk.tools.files == {}
    assert "file_write" not in walk.tools.calls


@pytest.mark.parametrize("role", ["generator", "reviewer", "executor", "supervisor"])
async def test_no_role_that_is_away_ends_it(role: str) -> None:
    away: list[Said] = [OSError("away")] * 99
    walk = Walk({"generator": [BAD] * 9, "reviewer": ["wrong"] * 9, "executor": [TESTS]} | {role: away}, Workspace())

    state = await walk.run(HARD)

    assert state["round"] >= state["rounds"]


async def test_the_best_state_so_far_is_left() -> None:
    tests = {"tests/test_calc.py": "x", "calc.py": "old"}
    walk = Walk({"generator": [GOOD, BAD], "supervisor": ["More."]}, Workspace(tests))
    walk.tools.broken = frozenset()
    nodes, state = nodes_of(walk.team), State(task=EASY)
    for node in ("plan", "generator", "executor", "generator", "executor"):
        state.update(await nodes[node](state))

    assert walk.tools.files == {**tests, **blocks_in(GOOD)}
    assert state["report"]["failed"] == ["test_add"]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (GOOD, {"calc.py": "def add(a, b):\n    return a + b\n"}),
        ("```python src/a.py\nx\n```\n```b.js\ny\n```", {"src/a.py": "x\n", "b.js": "y\n"}),
        ("```path=/etc/x.py\nx\n```\n```path=../x.py\nx\n```\n```python\nx\n```", {}),
    ],
)
def test_files_are_read_out_of_an_answer(answer: str, found: dict[str, str]) -> None:
    assert blocks_in(answer) == found


@pytest.mark.parametrize(
    ("task", "files", "easy"), [(EASY, 0, True), (HARD, 0, False), (EASY, 9, False), ("x" * 500, 0, False)]
)
def test_how_hard_a_task_looks(task: str, files: int, easy: bool) -> None:
    assert looks_easy(task, files) is easy


@pytest.mark.parametrize(
    ("best", "given", "answer"),
    [
        ({"a.py": "x", OWN_TESTS: "t"}, {}, "x"),
        ({"a.py": "x", "b.py": "y"}, {}, json.dumps({"files": {"a.py": "x", "b.py": "y"}})),
        ({"a.py": "x", "b.py": "old"}, {"b.py": "old"}, "1 files written; tests passed 2, failed 0"),
    ],
)
def test_its_answer(best: dict[str, str], given: dict[str, str], answer: str) -> None:
    assert answer_of({"best": best, "report": {"passed": 2, "failed": []}}, given) == answer
