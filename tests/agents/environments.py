"""Environments of third-party agents, each by itself under `.venv-agents`: made once, anew where a pin has changed.

`python -m tests.agents.environments [NAME…]` makes those that are not there yet. None has torch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.acceptance.node_programs import node_executable

ROOT = Path(__file__).parents[2] / ".venv-agents"
PYTHON = {
    "openai": ("openai==3.54.0",),
    "anthropic": ("anthropic==2.12.0",),
    "openai-agents": ("openai-agents==0.24.0",),
    "langgraph": ("langgraph==1.2.22", "langchain-openai==1.7.3"),
    "mini-swe-agent": ("mini-swe-agent==2.4.6", "litellm[mcp]==1.106.2"),
    "smolagents": ("smolagents[openai]==1.26.0",),
    "aider": ("aider-chat==0.86.2",),
}
NODE = ("openai@7.57.0", "@anthropic-ai/sdk@1.12.0")
READY = "ready.json"
"""What was installed, in each of them; written last."""


class Missing(Exception):
    """An environment can't be had."""


def python_of(name: str) -> Path:
    """The interpreter. Raises Missing."""
    folder, pins = ROOT / name, PYTHON[name]
    if not _ready(folder, pins):
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        installing = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", *pins)
        _run([str(folder / "bin" / "python"), *installing])
        (folder / READY).write_text(json.dumps(pins))
    return folder / "bin" / "python"


def node_modules(npm: Path) -> Path:
    """The folder in which Node finds the packages. Raises Missing."""
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
