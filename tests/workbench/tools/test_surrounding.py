"""Tools where a sandbox is around the process that has them; and not where none is."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workbench.sandbox.test_pods import CLOSED
from tests.workbench.tools.world import World
from workbench.sandbox import cgroup
from workbench.sandbox.job import Job, SandboxRefused
from workbench.sandbox.kinds import Surroundings
from workbench.sandbox.limits import MIB, Limits
from workbench.sandbox.sandbox import Sandbox
from workbench.tools.surrounding import network_devices, require_sandbox_around

ROOT = Path(__file__).parents[3]
INSIDE = """
import asyncio, json, pathlib, subprocess, sys
from ratchet.tools.audit import ToolAudit
from workbench.tools.policy import Policy
from workbench.tools.toolbox import Toolbox

async def main():
    root = pathlib.Path("work")
    root.mkdir()
    (root / "test_a.py").write_text("def test_a():\\n    assert 1 == 2\\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    toolbox = Toolbox(root, Policy(isolation="around"), ToolAudit(pathlib.Path("audit")))
    answers = []
    for name, arguments in (
        ("git_add", {"paths": ["."]}), ("git_commit", {"message": "x"}), ("git_status", {}), ("test_run", {}),
    ):
        answers.append((await toolbox.call(name, arguments)).content)
    await toolbox.close()
    print(json.dumps(answers))

asyncio.run(main())
"""
LOOPBACK = {"lo"}


def inside(*command: str) -> Job:
    """Sees the tools and what they import."""
    packages = [Path(one) for one in sys.path if one.endswith("site-packages")]
    mounts = {str(one): one for one in (*packages, ROOT / "ratchet", ROOT / "schemas", ROOT / "workbench")}
    return Job(
        ["python3", *command],
        environment={"PYTHONPATH": ":".join((str(ROOT), *map(str, packages)))},
        mounts=mounts,
        limits=Limits(wall_s=60, cpu_s=60, memory_bytes=1024 * MIB, processes=128, workspace_bytes=512 * MIB),
    )


def test_git_and_tests_run_in_the_sandbox_that_is_around(sandbox: Sandbox) -> None:
    result = sandbox.run_blocking(inside("-c", INSIDE))

    assert result.succeeded, (result.says, result.stderr)
    added, committed, status, ran = json.loads(result.stdout)
    assert added["text"] == "A\ttest_a.py\n" and len(committed["commit"]) == 40
    assert (status["branch"], status["clean"]) == ("main", True)
    assert (ran["ok"], ran["failed"]) == (False, ["test_a.py::test_a"])


def test_so_it_is_seen_where_proc_is_empty_as_in_a_container_that_masks_its_own() -> None:
    sandbox = Sandbox(cgroup.find(), 1, own_proc=False)
    seen = "import os; from workbench.tools.surrounding import Surrounding; Surrounding(); print(os.listdir('/proc'))"
    result = sandbox.run_blocking(inside("-c", seen))

    assert (result.stdout, result.stderr) == (b"[]\n", b"")
    assert network_devices(Path("/nowhere")) >= {"lo"}


async def test_it_is_refused_where_nothing_is_around(tmp_path: Path) -> None:
    world = World(tmp_path, isolation="around")
    (world.root / ".git").mkdir()
    result = await world.call("git_status")

    assert (result.ok, result.content["error"]) == (False, "ours")
    assert "no sandbox is around" in result.content["says"]
    await world.toolbox.close()


@pytest.mark.parametrize(
    ("found", "devices"),
    [
        (replace(CLOSED, has_filter=False), LOOPBACK),
        (replace(CLOSED, no_new_privileges=False), LOOPBACK),
        (CLOSED, {"lo", "eth0"}),
    ],
)
def test_a_filter_and_no_network_are_needed(found: Surroundings, devices: set[str]) -> None:
    with pytest.raises(SandboxRefused):
        require_sandbox_around(found, devices)
    require_sandbox_around(CLOSED, LOOPBACK)
