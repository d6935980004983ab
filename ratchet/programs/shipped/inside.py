"""The part of Ratchet that a program sees in its sandbox: the tools, if asked for, and what starts a coroutine."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import ratchet
import schemas
import workbench
from workbench.tools.names import TOOL_NAMES

RoleTools = Mapping[str, Mapping[str, str]]
"""Decisions, `allow` or `deny`, by the name of a tool and by role."""
ALL = "*"
"""All roles, and all tools, that are not named."""

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


def tools_files(by_role: RoleTools = MappingProxyType({})) -> dict[str, str]:
    """Return the files of the tools, by their paths. `by_role`: the tool policy of the program's declaration."""
    return {TOOLS_RUN: (HERE / "tools.py").read_text(encoding="utf-8"), TOOLS_POLICY: policy_text(by_role)}


def policy_text(by_role: RoleTools) -> str:
    """Return the policy as the tools read it. Git and tests run beside the program: a sandbox can't be opened in
    another."""
    of_all = by_role.get(ALL, {})
    parts = ['isolation = "around"', "[operations]", *_decisions(of_all)]
    for role, own in by_role.items():
        if role != ALL:
            parts += [f"[roles.{json.dumps(role, ensure_ascii=False)}]", *_decisions({**of_all, **own})]
    return "\n".join([*parts, ""])


def _decisions(table: Mapping[str, str]) -> list[str]:
    """Return the lines of a table, where `*` stands for the tools that it does not name."""
    named = {**dict.fromkeys(sorted(TOOL_NAMES) if ALL in table else (), table.get(ALL)), **table}
    return [f'{name} = "{decision}"' for name, decision in named.items() if name != ALL]


def with_task_tools(policy: str, tools: Collection[str]) -> str:
    """Return the text of a policy, of whatever making, that allows no other tools than these: an entry before all
    tables."""
    return f"task_tools = {json.dumps(sorted(tools))}\n{policy}"
