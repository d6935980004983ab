"""A machine but the first of a run over several: it joins the runs that machine 0 begins, and takes no requests.

Machine 0 writes into the run's folder where it waits (`RunFolder.meeting`), anew for each attempt. Here `accelerate
launch` is started for the newest such place, and ended where there is a newer one or the run has ended. Folders are
shared, so nothing else passes between the machines but what torch sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from fastapi import APIRouter

from ratchet.runs.store import RunFolder, RunStore
from ratchet.runtime.runner import Subscription
from ratchet.service.errors import RatchetError
from ratchet.service.telemetry import Log
from services.trainer.settings import TrainerSettings
from services.trainer.train import launch_command

log = Log("trainer")

POLL_EVERY_S = 2.0
END_WITHIN_S = 60.0
"""Seconds that the launcher has to end its processes; it kills them itself after 30."""


class Follower:
    name = "trainer"

    def __init__(self, settings: TrainerSettings, *, poll_every_s: float = POLL_EVERY_S) -> None:
        self._settings = settings
        self._store = RunStore(settings.adapters_dir)
        self._poll_every_s = poll_every_s
        self._joined: str | None = None
        self._launcher: asyncio.subprocess.Process | None = None
        self._loop: asyncio.Task[None] | None = None

    def routers(self) -> Sequence[APIRouter]:
        return []

    async def start(self) -> None:
        self._loop = asyncio.create_task(self._follow())

    def subscriptions(self) -> Sequence[Subscription]:
        return []

    def trouble(self) -> str | None:
        ended = self._loop is not None and self._loop.done()
        return "the loop that joins runs has ended: see the log, and restart it" if ended else None

    async def stop(self) -> None:
        """Leave the run in hand: machine 0 then fails, and takes it up from its last checkpoint."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._leave()

    async def _follow(self) -> None:
        while True:
            try:
                meeting, folder = await asyncio.to_thread(self._newest_meeting)
                if meeting != self._joined:
                    await self._leave(run_ended=meeting is None)
                    await self._join(meeting, folder)
            except (RatchetError, OSError) as error:
                log.error("turn-failed", f"{error}; it is tried again", exc_info=error)
            await asyncio.sleep(self._poll_every_s)

    def _newest_meeting(self) -> tuple[str | None, RunFolder | None]:
        """Return where machine 0 waits for this one, and for which run; None where it does not."""
        found: list[tuple[int, RunFolder]] = []
        for folder in self._store.unfinished_runs():
            address, _, written_at = (folder.meeting or "").partition(" ")
            if address == self._settings.trainer_main_address:
                found.append((int(written_at), folder))
        if not found:
            return None, None
        newest, folder = max(found, key=lambda one: one[0])
        return f"{self._settings.trainer_main_address} {newest}", folder

    async def _join(self, meeting: str | None, folder: RunFolder | None) -> None:
        self._joined = meeting
        if folder is None:
            return
        log.info("joined", f"machine {self._settings.trainer_machine_rank} joins the run in {folder.path}")
        self._launcher = await asyncio.create_subprocess_exec(
            *launch_command(self._settings, folder), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )

    async def _leave(self, *, run_ended: bool = False) -> None:
        """End the processes of the run in hand; peers that are gone may keep them waiting for minutes.

        Where the run has ended they end by themselves, and the launcher of machine 0 waits for that.
        """
        launcher, self._launcher = self._launcher, None
        if launcher is None or (run_ended and await _ends_within(launcher, END_WITHIN_S)):
            return
        if launcher.returncode is None:
            with suppress(ProcessLookupError):
                launcher.terminate()
        if not await _ends_within(launcher, END_WITHIN_S):
            launcher.kill()
            await launcher.wait()


async def _ends_within(process: asyncio.subprocess.Process, limit_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await process.wait()
    return process.returncode is not None
