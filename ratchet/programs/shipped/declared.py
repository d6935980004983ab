"""Each program that comes with Ratchet is declared by a function, and its file is sent into its sandbox as text.

docs/runner.md says what each is, what it needs and what it may take.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.programs.shipped import inside

AT = "/program"
AIDER = ("aider-chat==0.86.2",)
MINI_SWE_AGENT = ("mini-swe-agent==2.4.6", "litellm[mcp]==1.106.2")
CODING_TEAM = ("langgraph==1.2.22", *(one for one in inside.TOOLS_REQUIRE if not one.startswith("mcp")))
LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""It would fetch a list of prices."""


def shell() -> dict[str, Any]:
    """Solves a task by shell commands, one an answer, until the model says something that is none."""
    return {"command": ["python3", "-I", "-S", *_command_of("shell")], **_files("shell"), "limits": _limits(300, 32)}


def tool_agent() -> dict[str, Any]:
    """Our own agent: works by the tools of Ratchet, has the project's tests run, and mends what they find."""
    return {
        "command": [inside.TOOLS_PYTHON, "-I", inside.TOOLS_RUN, "agent"],
        "tools": True,
        "limits": _limits(600, 32),
    }


def aider() -> dict[str, Any]:
    """Aider as it is, told the task once: on the files that the task names, or all of a small workspace."""
    return {
        "command": ["python", *_command_of("aider"), "{input}"],
        "task": "file",
        **_files("aider"),
        "requirements": AIDER,
        "environment": {"HOME": "/tmp", **LITELLM},
        "limits": _limits(900, 64),
    }


def mini_swe_agent() -> dict[str, Any]:
    """mini-swe-agent as it is, its commands in the text of answers, so that a model needs no tool calls for it."""
    return {
        "command": ["python", *_command_of("mini_swe_agent")],
        **_files("mini_swe_agent"),
        "requirements": MINI_SWE_AGENT,
        "environment": {"HOME": "/tmp", "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", **LITELLM},
        "limits": _limits(900, 64),
    }


def coding_team() -> dict[str, Any]:
    """Four roles in a graph of LangGraph: generator, reviewer, executor, supervisor, on the tools of Ratchet."""
    return {
        "command": ["python", *_command_of("coding_team")],
        **_files("coding_team"),
        "tools": True,
        "tool_policy": {"*": {"file_remove": "allow"}},
        "requirements": CODING_TEAM,
        "limits": {**_limits(900, 64), "memory_mb": 2048},
    }


def _command_of(name: str) -> list[str]:
    return [f"{AT}/{name}.py"]


def _files(name: str) -> dict[str, Any]:
    return {"data": {f"{AT}/{name}.py": (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")}}


def _limits(seconds: int, calls: int) -> dict[str, int]:
    return {"seconds": seconds, "calls": calls}
