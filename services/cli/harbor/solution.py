"""A Harbor task's own solution, run in a sandbox as its oracle: the patch that it leaves is the task's reference."""

from __future__ import annotations

import asyncio

from ratchet.service.errors import FAULTS
from schemas.messages.task import Task
from services.cli.harbor.folder import HarborTask
from services.cli.terminal import CommandError
from workbench.sandbox.job import WORKSPACE, Job
from workbench.sandbox.limits import MIB, Limits
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.workspaces.settings import WorkspaceSettings
from workbench.workspaces.workspaces import Workspaces

LIMITS = Limits(wall_s=600.0, cpu_s=600.0, memory_bytes=2048 * MIB, processes=256)


def solved_task(harbor: HarborTask) -> Task:
    """Return the task with what its solution changes as its reference; without one where there is no solution.

    Raises CommandError where it can't be run, as where the sandbox does not hold.
    """
    task = Task.model_validate({"task_id": harbor.name, **harbor.line})
    if harbor.solution is None:
        return task
    try:
        return task.model_copy(update={"reference": asyncio.run(_patch(task, harbor))})
    except FAULTS as error:
        raise CommandError(f"the solution of {harbor.name} can't be run: {error}") from error


async def _patch(task: Task, harbor: HarborTask) -> str:
    assert task.workspace is not None and harbor.solution is not None
    sandbox = await asyncio.to_thread(Sandbox.open, SandboxSettings())
    async with Workspaces(WorkspaceSettings(), sandbox) as workspaces:
        before = await workspaces.tree(task.workspace)
        place = task.workspace.seen_at or WORKSPACE
        job = Job(
            ["bash", "/solution/solve.sh"],
            tree=before.files,
            data={f"/solution/{path}": text.encode() for path, text in harbor.solution.items()},
            links={place: WORKSPACE},
            directory=place,
            collect_tree=True,
            limits=LIMITS,
        )
        return (await workspaces.artifact(before, await sandbox.run(job))).patch
