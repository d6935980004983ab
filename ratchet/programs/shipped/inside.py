"""The part of Ratchet that a program sees in its sandbox: the tools, if asked for, and what starts a coroutine."""

from __future__ import annotations

from pathlib import Path

import ratchet
import schemas
import workbench

HERE = Path(__file__).parent
LAUNCHER = "/program/coroutine.py"

TOOLS = "/ratchet"
TOOLS_NAME = "ratchet-tools"
TOOLS_ENVIRONMENT = f"{TOOLS}/environment"
TOOLS_PYTHON = f"{TOOLS_ENVIRONMENT}/bin/python"
TOOLS_RUN = f"{TOOLS}/run.py"
TOOLS_POLICY = f"{TOOLS}/policy.toml"
TOOLS_REQUIRE = (
    "google-re2",
    "httpcore",
    "httpx",
    "mcp==2.*",
    "msgspec",
    "prometheus-client",
    "pydantic>=2.12",
    "pydantic-settings",
    "ruff",
    "uvicorn",
    "zstandard",
)
"""Requirements of the project that the modules of the tools import."""


def launcher() -> str:
    return (HERE / "coroutine.py").read_text(encoding="utf-8")


def tools_packages() -> dict[str, Path]:
    """Folders that it sees: the code of this very installation."""
    return {f"{TOOLS}/packages/{one.__name__}": Path(one.__path__[0]) for one in (ratchet, schemas, workbench)}


def tools_files() -> dict[str, str]:
    """Git and tests run beside the program: a sandbox can't be opened in another."""
    return {TOOLS_RUN: (HERE / "tools.py").read_text(encoding="utf-8"), TOOLS_POLICY: 'isolation = "around"\n'}
