"""`Sandbox`: what a service runs foreign code with."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from workbench.sandbox import bubblewrap, cgroup, half_started, metrics, refusal
from workbench.sandbox.cgroup import Cgroups
from workbench.sandbox.job import Job, Result, SandboxError, SandboxRefused
from workbench.sandbox.kinds import Isolation, faults, look
from workbench.sandbox.running import Stop, run
from workbench.sandbox.self_test import self_test
from workbench.sandbox.settings import SandboxSettings
from workbench.sandbox.syscalls import filters

log = logging.getLogger("sandbox")

RELIES_ON = "the kernel's namespaces and seccomp, set up by bubblewrap"
AROUND = {
    Isolation.BWRAP: "",
    Isolation.POD: "in a container without privileges",
    Isolation.GVISOR: "in a container without privileges on gVisor's kernel",
}
NO_PROC = "proc on /newroot/proc"
READ_ONLY_PROC = "max_user_namespaces"
"""The path that bubblewrap names where it may not mount a /proc, or write to the one there is."""
SHOWN_S = 60.0
"""A refusal is shown to Prometheus for so long before the service ends: a few of its looks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The limits on the runs on this machine, for people."""

    isolation: str
    limits: str
    user: str
    around: str = ""

    @property
    def says(self) -> str:
        return "; ".join(filter(None, (self.isolation, self.limits, self.user, self.around)))


class Sandbox:
    """Runs jobs, so many at once, after `open` has proved that it holds them."""

    def __init__(
        self,
        cgroups: Cgroups | None,
        runs_at_once: int,
        isolation: Isolation = Isolation.BWRAP,
        *,
        own_proc: bool = True,
    ) -> None:
        self._cgroups = cgroups
        self._slots = threading.BoundedSemaphore(runs_at_once)
        self._programs = filters()
        self._isolation = isolation
        self._own_proc = own_proc

    @classmethod
    def open(cls, settings: SandboxSettings) -> Self:
        """Raises SandboxRefused, with what mends it, where the sandbox would not hold. Takes about half a second."""
        machine = refusal.look(bubblewrap.missing_programs())
        if machine.missing:
            raise SandboxRefused(refusal.sentence(machine, "There is no sandbox on this machine"))
        isolation = settings.sandbox_isolation
        if missing := faults(isolation, look()):
            raise SandboxRefused(f"RATCHET_SANDBOX_ISOLATION={isolation}, but {'; '.join(missing)}; {refusal.MORE}")
        half_started.sweep()
        cgroups = cgroup.find(settings.sandbox_cgroup)
        if cgroups is None and (settings.sandbox_require_cgroup or settings.sandbox_cgroup):
            raise SandboxRefused(_no_cgroup(settings.sandbox_cgroup))
        if cgroups is not None:
            cgroups.sweep()
        sandbox = cls(cgroups, settings.sandbox_runs_at_once, isolation)
        try:
            try:
                self_test(sandbox.run_blocking)
            except SandboxError as error:
                if isolation is Isolation.BWRAP or not _is_about_proc(error):
                    raise
                sandbox = cls(cgroups, settings.sandbox_runs_at_once, isolation, own_proc=False)
                self_test(sandbox.run_blocking)
        except SandboxRefused:
            raise
        except SandboxError as error:
            raise SandboxRefused(refusal.sentence(machine, str(error))) from error
        return sandbox

    @classmethod
    async def opened_or_shown(cls, settings: SandboxSettings, shown_s: float = SHOWN_S) -> Self:
        """Open a sandbox as `open` does. In a container a refusal is a metric for a minute before it is raised, since
        nobody is there who reads why the process ended."""
        try:
            return await asyncio.to_thread(cls.open, settings)
        except SandboxRefused as error:
            if settings.sandbox_isolation is not Isolation.BWRAP:
                metrics.refused.set(1)
                log.error("%s", error, extra={"action": "sandbox-refused"})
                await asyncio.sleep(shown_s)
            raise

    @property
    def facts(self) -> Facts:
        return Facts(
            isolation=RELIES_ON,
            limits=f"limits by {self._cgroups.says}" if self._cgroups else "limits by measuring, for want of a cgroup",
            user="a user of its own for each run" if os.geteuid() == 0 else "as the user of this process",
            around=AROUND[self._isolation] + ("" if self._own_proc else ", without /proc"),
        )

    @property
    def has_proc(self) -> bool:
        """False where a container's is masked, and what runs sees an empty one."""
        return self._own_proc

    def run_blocking(self, job: Job, stop: Stop | None = None) -> Result:
        """Run a job to the end of its last process. Raises SandboxError if the sandbox itself failed."""
        if stop is not None:
            return self._run(job, stop)
        own = Stop()
        try:
            return self._run(job, own)
        finally:
            own.close()

    def _run(self, job: Job, stop: Stop) -> Result:
        with self._slots:
            return run(job, self._programs, self._cgroups, stop, own_proc=self._own_proc)

    async def run(self, job: Job, called_off: asyncio.Event | None = None) -> Result:
        """Run the job as `run_blocking` does. Cancelled, it ends the run and returns when nothing is left of it.
        `called_off`, once set, ends the run too, and what it left is in the result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        stop = Stop()
        calling_off = asyncio.create_task(_call_off(called_off, stop)) if called_off else None
        threading.Thread(target=self._in_thread, args=(job, stop, outcome, loop), name="sandbox", daemon=True).start()
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait((outcome,))
            outcome.exception()
            raise
        finally:
            if calling_off is not None:
                calling_off.cancel()
            if outcome.done():
                stop.close()

    def _in_thread(
        self, job: Job, stop: Stop, outcome: asyncio.Future[Result], loop: asyncio.AbstractEventLoop
    ) -> None:
        try:
            result = self._run(job, stop)
        except BaseException as error:
            _tell(loop, outcome.set_exception, error)
        else:
            _tell(loop, outcome.set_result, result)


async def _call_off(wish: asyncio.Event, stop: Stop) -> None:
    await wish.wait()
    stop.set()


def _tell(loop: asyncio.AbstractEventLoop, tell: Callable[[Any], None], what: object) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, what)


def _is_about_proc(error: SandboxError) -> bool:
    return any(said in str(error) for said in (NO_PROC, READ_ONLY_PROC))


def _no_cgroup(named: Path | None) -> str:
    if named is None:
        return (
            "No cgroup can be made below this service's own: give it one (systemd: Delegate=yes), name it with "
            "RATCHET_SANDBOX_CGROUP, or unset RATCHET_SANDBOX_REQUIRE_CGROUP"
        )
    return (
        f"RATCHET_SANDBOX_CGROUP: no group with memory and pids can be made in {named}: give it to this service's user"
    )
