"""The tool task: of ten files read two, follow pointers, add what they hold, write the sum to a third. Pure.

A workspace has a number, from which all in it follows; so the text of a task is enough to set it up anywhere. A part of
all workspaces is never used in training, by a hash that trainer and tester agree on.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

FILES = "abcdefghij"
TARGETS = "uvwxyz"
POINTERS = 3
LOWEST, HIGHEST = 10, 49
"""The range of what a file holds: every number and every sum has two digits."""
HELD_OUT_SHARE = 0.25
WORKSPACES = 2**40
UNKNOWN = "?"
"""The result of a tool that can't do what it is asked."""

Part = Literal["train", "held_out"]
_INPUT = re.compile(r"workspace (\d{1,13})(, blanked)?: ([a-j]\+[a-j]>[u-z])")


@dataclass(frozen=True)
class ToolTask:
    """The task of a workspace. `a+c>x`: add what a and c hold, write it to x, say it.

    `blanked`: whatever a tool does, it brings `?`, so that nobody can know the sum.
    """

    workspace: int
    blanked: bool = False

    @cached_property
    def _draw(self) -> tuple[dict[str, str], tuple[str, str], str]:
        rng = random.Random(self.workspace)
        pointers = rng.sample(FILES, POINTERS)
        numbers = [name for name in FILES if name not in pointers]
        held = {name: str(rng.randint(LOWEST, HIGHEST)) for name in numbers}
        held |= {name: f"@{rng.choice(numbers)}" for name in pointers}
        first, second = rng.sample(FILES, 2)
        return {name: held[name] for name in FILES}, (first, second), rng.choice(TARGETS)

    @property
    def files(self) -> dict[str, str]:
        return dict(self._draw[0])

    @property
    def operands(self) -> tuple[str, str]:
        return self._draw[1]

    @property
    def target(self) -> str:
        return self._draw[2]

    @property
    def question(self) -> str:
        """The question that the model is asked."""
        first, second = self.operands
        return f"{first}+{second}>{self.target}"

    @property
    def input(self) -> str:
        """The task's input for the fleet: it names the workspace for the agent that sets it up."""
        return f"workspace {self.workspace}{', blanked' if self.blanked else ''}: {self.question}"

    def value(self, name: str) -> int:
        """That a file holds, or the file it points to."""
        held = self._draw[0][name]
        return self.value(held[1:]) if held.startswith("@") else int(held)

    @property
    def sum(self) -> str:
        first, second = self.operands
        return str(self.value(first) + self.value(second))

    @property
    def answer(self) -> str:
        """The outcome of whoever does all right."""
        return outcome({self.target: self.sum}, self.sum)

    @property
    def held_out(self) -> bool:
        content = json.dumps([self.question, self.files]).encode()
        return hashlib.sha256(content).digest()[0] < HELD_OUT_SHARE * 256


def tool_task(rng: random.Random, part: Part) -> ToolTask:
    """One of the training part, or of the part that no model here was trained on."""
    while True:
        task = ToolTask(rng.randrange(WORKSPACES))
        if task.held_out == (part == "held_out"):
            return task


def task_of(text: str) -> ToolTask:
    """Parse a task's input. Raises ValueError for a text that is none."""
    if found := _INPUT.fullmatch(text):
        task = ToolTask(int(found[1]), blanked=found[2] is not None)
        if task.question == found[3]:
            return task
    raise ValueError(f"no task of a workspace: {text[:100]!r}")


def outcome(changed: Mapping[str, str], said: str) -> str:
    """Describe what became of a workspace, as the answer to its task: the files that changed and what was said.

    Name and content are fields of their own, so that a scorer that counts fields sees which of them is right.
    """
    files = sorted(changed)
    return json.dumps({"files": files, "hold": [changed[name] for name in files], "said": said}, ensure_ascii=False)


def is_done(task: ToolTask, answer: str) -> bool:
    """Tell whether the file asked for holds the sum, no other file changed, and the sum alone was said.

    This is the hidden verifier: only the demo's report asks it. It adds up the files themselves, from the
    task's text; what the task takes for right it does not ask.
    """
    try:
        told = json.loads(answer)
        changed, said = dict(zip(told["files"], told["hold"], strict=True)), told["said"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    before = task.files
    asked, _, target = task.question.partition(">")
    total = 0
    for name in asked.split("+"):
        held = before[name]
        while held[:1] == "@":
            held = before[held[1:]]
        total += int(held)
    return {**before, **changed} == {**before, target: f"{total}"} and said == f"{total}"


def _tool(name: str, about: str, **parameters: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in parameters.items()},
        "required": list(parameters),
    }
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


TOOLS = (
    _tool("read_file", "What a file holds.", path="string"),
    _tool("add", "The sum of two numbers.", a="integer", b="integer"),
    _tool("write_file", "Write a file anew.", path="string", content="string"),
)


@dataclass
class Workspace:
    """The files of a task, and the tools that work on them."""

    task: ToolTask
    files: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.files = self.task.files

    @property
    def changed_files(self) -> dict[str, str]:
        before = self.task.files
        return {name: held for name, held in self.files.items() if before.get(name) != held}

    def use(self, tool: str, arguments: str) -> str:
        """Use the tool and return its result; `arguments` as JSON."""
        try:
            brought = self._use(tool, json.loads(arguments))
        except (KeyError, TypeError, ValueError):
            brought = UNKNOWN
        return UNKNOWN if self.task.blanked else brought

    def _use(self, tool: str, given: Any) -> str:
        match tool:
            case "read_file":
                return self.files[given["path"]]
            case "add":
                return str(int(given["a"]) + int(given["b"]))
            case "write_file":
                self.files[str(given["path"])] = str(given["content"])
                return "ok"
            case _:
                return UNKNOWN
