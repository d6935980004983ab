"""Starts again what ended, as whoever supervises a fleet does; halts a service at a failpoint, kills it, lets it go on.

A service that ends by anything but the kill that was meant for it is a fault of ours and is kept as such.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.service.failpoint import STEP_BYTES
from tests.acceptance.fleet import STOP_S, Fleet, FleetError, Member
from tests.acceptance.user import User

LOOK_EVERY_S = 0.02
AGAIN_AFTER_S = 0.2


@dataclass
class Supervisor:
    fleet: Fleet
    crashes: list[str] = field(default_factory=list)
    exit_codes: dict[str, int] = field(default_factory=dict)
    """Exit codes of the orderly stop at the end."""
    _meant: set[int] = field(default_factory=set)
    """Pids of those that were killed, or whose end is right."""
    _paused: bool = False
    _may_give_up: bool = False

    def __post_init__(self) -> None:
        for member in self.fleet:
            self.take_on(member)

    def take_on(self, member: Member) -> None:
        """Prepare a member before its first start."""
        self._order(member).write_bytes(bytes(STEP_BYTES))
        member.environment["RATCHET_FAILPOINT"] = f"@{self._order(member)}"

    @asynccontextmanager
    async def at_work(self, user: User, *beside: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
        """All is ready, what ends is started again, and `user` reads Results. In the end all is stopped in good order,
        also what is halted."""
        await asyncio.to_thread(self.fleet.start)
        watching = [asyncio.create_task(work()) for work in (self.run, user.read_results, *beside)]
        try:
            yield
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await user.close()
            for member in self.fleet:
                self.resume(member)
            with suppress(Exception):
                self.exit_codes = await asyncio.to_thread(self.fleet.stop)
            self.fleet.kill()

    def complaints(self) -> list[str]:
        """Return what went wrong, once the fleet has ended."""
        found = [f"crashed: {crash}" for crash in self.crashes]
        found += [f"{name} stopped with exit code {code}" for name, code in self.exit_codes.items() if code]
        return found if self.exit_codes else [*found, "the fleet did not stop in good order"]

    async def run(self) -> None:
        """Start members again that end, until cancelled."""
        while True:
            for member in self.fleet if not self._paused else ():
                if member.process is not None and (code := member.exit_code) is not None:
                    self._note(member, code)
                    member.start()
            await asyncio.sleep(AGAIN_AFTER_S)

    async def ready(self, member: Member, within_s: float) -> bool:
        """Tell whether the member gets ready in time; `run` starts one that has just ended again."""
        until = time.monotonic() + within_s
        while (left_s := until - time.monotonic()) > 0:
            with suppress(FleetError):
                await asyncio.to_thread(member.wait_until_ready, left_s)
                return True
            await asyncio.sleep(AGAIN_AFTER_S)
        return False

    def arm(self, member: Member, failpoint: str) -> None:
        """Make the member halt when it next comes to the failpoint; an empty one disarms it."""
        with self._order(member).open("r+b") as file:
            file.write(failpoint.encode().ljust(STEP_BYTES, b"\0"))

    async def halts(self, member: Member, within_s: float, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Tell whether the member halts before the time is over or `given_up()` is true."""
        until = time.monotonic() + within_s
        while not is_stopped(member.pid):
            if given_up() or time.monotonic() > until:
                self.arm(member, "")
                return is_stopped(member.pid)  # it may have come there just now
            await asyncio.sleep(LOOK_EVERY_S)
        return True

    def kill(self, member: Member) -> None:
        """Kill the member with SIGKILL, halted or not."""
        if member.exit_code is None:
            self._meant.add(member.pid)
            member.kill()

    async def ends(self, member: Member, within_s: float) -> bool:
        """Tell whether the member ends by itself in time."""
        assert member.process is not None
        try:
            await asyncio.to_thread(member.process.wait, within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def resume(self, member: Member) -> None:
        if member.exit_code is None:
            os.kill(member.pid, signal.SIGCONT)

    async def end(self, member: Member) -> None:
        """Stop the member in good order; it is started again. Raises TimeoutExpired."""
        assert member.process is not None
        self._meant.add(member.pid)
        with self.pause():
            member.process.terminate()
            await asyncio.to_thread(member.process.wait, STOP_S)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Start nothing again within the block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @contextmanager
    def giving_up_allowed(self) -> Iterator[None]:
        """Let services end with code 1 within the block, as where they can't start."""
        self._may_give_up = True
        try:
            yield
        finally:
            self._may_give_up = False

    def _order(self, member: Member) -> Path:
        return self.fleet.folder / f"{member.name}.failpoint"

    def _note(self, member: Member, code: int) -> None:
        if member.pid not in self._meant and not (code == 1 and self._may_give_up):
            self.crashes.append(f"{member.name} ended with {code}\n{member.log_tail()}")


def is_stopped(pid: int) -> bool:
    """Tell whether SIGSTOP has stopped the process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
