"""Faults of disks: full ones, failing ones, and one that became read-only."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from bench.faults.rig import ADAPTERS, INDEX, LOGS, Rig
from bench.faults.steps import Step
from tests.acceptance.fleet import ORCHESTRATOR
from tests.disks import remount

MOST_FREE_BYTES = 1024 * 1024

Strike = Callable[[Rig, Step], AbstractAsyncContextManager[None]]


def full(folder: str) -> Strike:
    """The file system under this folder has room for 0 to 1 MB."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        disk = rig.disks[folder]
        disk.leave(rig.draw.choice((0, rig.draw.randrange(64 * 1024), rig.draw.randrange(MOST_FREE_BYTES))))
        rig.resume(step.service)
        yield
        disk.empty()

    return strike


READY_WITHIN_S = 60.0


def failing(error: int, *, writes_only: bool = False) -> Strike:
    """Every call of every service on its files ends with this error, of open files too."""

    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        before = await rig.retried()
        rig.preload.fail(error, rig.fleet.folder / rig.draw.choice((LOGS, INDEX, ADAPTERS)), writes_only=writes_only)
        rig.resume(step.service)
        yield
        if (retried := await rig.retried() - before) > 0:
            rig.complaints.append(f"{step.name}: {retried} messages had an attempt counted for a failing disk")
        rig.preload.fail_no_more()

    return strike


@asynccontextmanager
async def read_only(rig: Rig, step: Step) -> AsyncIterator[None]:
    """The kernel allows that only while no file is open for writing: who writes the logs is killed, too."""
    folder = rig.disks[LOGS].folder
    with rig.supervisor.giving_up_allowed():
        with rig.supervisor.paused():
            for service in {step.service, ORCHESTRATOR}:
                rig.kill(service)
            await _remount(rig, "ro")
        yield
        await asyncio.to_thread(remount, folder, "rw")
        async with asyncio.timeout(READY_WITHIN_S):
            for service in {step.service, ORCHESTRATOR}:
                while (await asyncio.to_thread(rig.fleet[service].get, "/readyz"))[0] != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def _remount(rig: Rig, how: str) -> None:
    for _ in range(50):
        try:
            await asyncio.to_thread(remount, rig.disks[LOGS].folder, how)
            return
        except subprocess.CalledProcessError:  # another service has a file open, for a moment
            await asyncio.sleep(0.05)
    rig.complaints.append(f"the disk could not be made {how}: a killed service's files are still open")
