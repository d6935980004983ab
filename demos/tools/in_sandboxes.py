"""The tools demo where the fleet's runner runs the agent: its program, its tasks' files and checks, what it left. Pure.

A task brings its files, and the agent's tools work on a copy of them inside a sandbox. What it left there, as the
runner saw it from outside, is what is scored: by hidden cases on the patched files, and by what was said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demos.tools import in_sandbox
from demos.tools.agent import MOST_CALLS, PROGRAM
from demos.toy.tools.task import TOOLS, ToolTask, outcome
from ratchet.logs.rows import AnswerRow
from schemas.messages.workspace import Workspace

PROGRAMS = "programs.toml"
"""The name of the runner's file of programs in the demo's folder."""
AT = "/program"
SCORER = "2*tests + 1*verifier:exact"
"""A third for the right file and no other, a third for what it holds, a third for what was said: as `verifier:json`
gives them where the agent tells its own outcome."""
RUNS_AT_ONCE = 8
ROLLOUT_S = 0.3
"""Seconds of two idle cores that a rollout takes, from its start to its score."""
_FILE = re.compile(r"""^diff --git .* "?b/(.+?)"?$""", re.MULTILINE)


def settings(folder: Path, runs_at_once: int = RUNS_AT_ONCE) -> dict[str, str]:
    """Return the settings beside those of the demo; `folder` is its own."""
    return {"RATCHET_SANDBOX_RUNS_AT_ONCE": str(runs_at_once), "RATCHET_RUNNER_DIR": str(folder / "runner")}


OFFERED: Mapping[str, Any] = {"tools": TOOLS, "most_calls": MOST_CALLS}
"""The tools that the model is offered, as the program reads them."""


def programs(agent_id: str, offered: Mapping[str, Any] = OFFERED, seconds: int = 60) -> str:
    """The file that declares the agent's program, in TOML: what it needs is in it as text."""
    source = Path(in_sandbox.__file__).read_text(encoding="utf-8")
    command = ["python3", "-I", "-S", f"{AT}/agent.py", f"{AT}/offered.json"]
    # a string or a list of strings in JSON, of ASCII alone, is one in TOML
    return f"""\
[agents.{agent_id}]
programs = ["{PROGRAM}"]

[programs.{PROGRAM}]
command = {json.dumps(command)}

[programs.{PROGRAM}.data]
"{AT}/agent.py" = {json.dumps(source)}
"{AT}/offered.json" = {json.dumps(json.dumps(offered))}

[programs.{PROGRAM}.limits]
seconds = {seconds}
calls = {offered["most_calls"]}
"""


def message_fields(task: ToolTask) -> dict[str, Any]:
    """Return the fields of a Task: its files, and what only the scorer sees."""
    return {"workspace": Workspace(files=task.files), "reference": task.sum, "criteria": criteria(task)}


def criteria(task: ToolTask) -> str:
    """Two cases on the files as they were left: which there are, the ten unchanged, and what the new one holds."""
    names = sorted([*task.files, task.target])
    as_it_was = "".join(task.files[name] for name in sorted(task.files))
    return two_cases(("ls && cat [a-j]", "\n".join([*names, as_it_was])), ("cat [!a-j]*", task.sum))


def two_cases(which: tuple[str, str], holds: tuple[str, str]) -> str:
    """Return criteria of two commands and what they print: which files there are, and what was written."""
    named = {"the right file and no other": which, "what was written": holds}
    cases = [
        {"name": name, "command": ["sh", "-c", command], "expected_text": text}
        for name, (command, text) in named.items()
    ]
    return json.dumps({"tests": {"cases": cases}})


def outcome_of(row: AnswerRow) -> str:
    """Return the outcome of a rollout, in the form of the agent that tells it itself: by the files that its sandbox
    held in the end."""
    said = row.response or ""
    return said if row.artifact is None else outcome(changed_by(row.artifact.patch), said)


def changed_by(patch: str) -> dict[str, str]:
    """Return by name what files hold that a patch changes or makes; each had a line at most, so all of it is in the
    patch."""
    _, *parts = _FILE.split(patch)
    return {name: _now(diff) for name, diff in zip(parts[::2], parts[1::2], strict=True)}


def _now(diff: str) -> str:
    _, _, hunks = diff.partition("\n@@ ")
    return "\n".join(line[1:] for line in hunks.split("\n") if line.startswith("+"))
