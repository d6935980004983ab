"""Environments of third-party agents, each by itself under `.venv-agents`: made once, anew where a pin has changed.

They are made as `ratchet programs install` makes them, so that programs in sandboxes run in the same.
`python -m tests.agents.environments [NAME…]` makes those that are not there yet. None has torch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ratchet.programs.declared import declared_programs
from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import NotInstalled
from ratchet.programs.shipped.declared import AIDER, MINI_SWE_AGENT
from tests.acceptance.node_programs import node_executable
from tests.programs import REPOSITORY

ROOT = REPOSITORY / ".venv-agents"


def example(name: str) -> tuple[str, ...]:
    """Return the requirements of a program of `examples/`."""
    return declared_programs(REPOSITORY / "examples" / name / "programs.toml")[name].requirements


PYTHON = {
    "openai": ("openai==3.54.0",),
    "anthropic": ("anthropic==2.12.0",),
    "openai-agents": example("openai-agents"),
    "langgraph": example("langgraph"),
    "mini-swe-agent": MINI_SWE_AGENT,
    "smolagents": ("smolagents[openai]==1.26.0",),
    "aider": AIDER,
    "pydantic-ai": ("pydantic-ai-slim[openai]==2.68.0",),
    "instructor": ("instructor==1.17.0",),
    "dspy": ("dspy==3.4.1",),
    "langchain": ("langchain-openai==1.7.4",),
}
NODE = (
    "openai@7.57.0",
    "@anthropic-ai/sdk@1.12.0",
    "ai@6.0.326",
    "@ai-sdk/openai@3.0.141",
    "@ai-sdk/anthropic@3.0.140",
)
READY = "ready.json"
"""The file with what is installed in an environment, written last."""


class Missing(Exception):
    """An environment can't be had."""


def python_of(name: str) -> Path:
    """Return the interpreter of an environment. Raises Missing."""
    try:
        return Environments(ROOT).install(name, PYTHON[name], lambda told: None) / "bin" / "python"
    except NotInstalled as error:
        raise Missing(str(error)) from error


def node_modules(npm: Path) -> Path:
    """Return the folder of Node's packages. Raises Missing."""
    folder = ROOT / "node"
    if not _ready(folder, NODE):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run([str(npm), "install", "--no-audit", "--no-fund", "--prefix", str(folder), *NODE])
        (folder / READY).write_text(json.dumps(NODE))
    return folder / "node_modules"


def _ready(folder: Path, pins: tuple[str, ...]) -> bool:
    file = folder / READY
    return file.exists() and json.loads(file.read_text()) == list(pins)


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Missing(f"{' '.join(command)}: {ran.stderr[-500:]}")


def main(names: list[str]) -> None:
    for name in names or PYTHON:
        sys.stderr.write(f"{name}\n")
        python_of(name)
    if not names and (npm := node_executable("npm")):
        sys.stderr.write("node\n")
        node_modules(npm)


if __name__ == "__main__":
    main(sys.argv[1:])
