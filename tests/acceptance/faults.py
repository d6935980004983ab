"""Kills, and who starts again what was killed: the services at their failpoints or at random, and the broker.

A service that ends by anything but the kill that was meant for it is a fault of ours and is kept as such.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ratchet.service.failpoint import STEPS
from tests.acceptance.fleet import AGENT, ORCHESTRATOR, SCORER, Fleet, Member
from tests.acceptance.user import User

LOOK_EVERY_S = 0.05
LOG_STEPS = ("written", "fsynced")
"""Only the orchestrator writes logs."""
STEPS_OF: Mapping[str, tuple[str, ...]] = {
    ORCHESTRATOR: STEPS,
    AGENT: tuple(step for step in STEPS if step not in LOG_STEPS),
    SCORER: tuple(step for step in STEPS if step not in LOG_STEPS),
}


@dataclass(frozen=True, slots=True)
class Failpoint:
    """The `passage`-th time the service reaches the step, it is gone."""

    step: str
    passage: int

    @property
    def environment(self) -> dict[str, str]:
        return {"RATCHET_FAILPOINT": f"{self.step}:{self.passage}"}


def every_step(passage: int) -> dict[str, list[Failpoint]]:
    """Each service dies once at each of its steps, one life after the other."""
    return {name: [Failpoint(step, passage) for step in steps] for name, steps in STEPS_OF.items()}


@dataclass
class Restarter:
    """Starts every member again when it ended: with the next of its failpoints; when those are used up, without."""

    fleet: Fleet
    plan: dict[str, list[Failpoint]]
    died_at: list[tuple[str, str]] = field(default_factory=list)
    """(service, step) in the order of the deaths; `outside` for a kill from outside."""
    crashes: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    """Queues that were not empty at the end."""
    exit_codes: dict[str, int] = field(default_factory=dict)
    """Of the orderly stop at the end."""
    _armed: dict[str, Failpoint | None] = field(default_factory=dict)
    _killed: set[str] = field(default_factory=set)

    def start(self, member: Member) -> None:
        waiting = self.plan.get(member.name)
        self._armed[member.name] = waiting.pop(0) if waiting else None
        armed = self._armed[member.name]
        member.start(armed.environment if armed else None)

    def start_fleet(self) -> None:
        for member in self.fleet:
            self.start(member)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for member in self.fleet:
                if (code := member.exit_code) is not None:
                    self._note(member, code)
                    self.start(member)
            await asyncio.sleep(LOOK_EVERY_S)

    def kill(self, member: Member) -> None:
        """kill -9 from outside, whatever it is doing."""
        if member.exit_code is None:
            self._killed.add(member.name)
            member.kill()

    @property
    def still_planned(self) -> dict[str, list[Failpoint]]:
        """What has not come to pass: the armed ones, and those that wait for their turn."""
        armed = {name: [failpoint] for name, failpoint in self._armed.items() if failpoint}
        names = [name for name in self.fleet.members if armed.get(name) or self.plan.get(name)]
        return {name: armed.get(name, []) + self.plan.get(name, []) for name in names}

    def disarm(self) -> None:
        """No failpoint from now on: who is armed is killed, and comes back without."""
        self.plan.clear()
        for name, failpoint in self._armed.items():
            if failpoint:
                self.kill(self.fleet[name])

    async def wait_until_all_died(self, timeout_s: float) -> None:
        """At the time-out it just returns: `still_planned` tells."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.still_planned:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _note(self, member: Member, code: int) -> None:
        armed = self._armed.get(member.name)
        if member.name in self._killed:
            self._killed.discard(member.name)
            self.died_at.append((member.name, "outside"))
        elif armed is not None and code == -signal.SIGKILL:
            self.died_at.append((member.name, armed.step))
        else:
            self.crashes.append(f"{member.name} ended with {code}\n{member.log_tail()}")


@asynccontextmanager
async def under_fire(restarter: Restarter, user: User, *, tasks_per_s: float, rest_s: float) -> AsyncIterator[None]:
    """Tasks flow while the body kills; then nobody kills any more, and what is in the air gets time to come back.

    Leaves with the fleet stopped in good order, the logs read into the user's ledger.
    """
    fleet, until = restarter.fleet, asyncio.Event()
    restarter.start_fleet()
    restarting = asyncio.create_task(restarter.run())
    reading = asyncio.create_task(user.read_results())
    publishing = asyncio.create_task(user.publish(None, per_s=tasks_per_s, until=until))
    try:
        yield
        until.set()
        await publishing
        await user.wait_for_answers(rest_s)
        restarter.left = await user.wait_until_at_rest(rest_s)
    finally:
        for task in (restarting, reading, publishing):
            task.cancel()
        await asyncio.gather(restarting, reading, publishing, return_exceptions=True)
        await user.close()
        restarter.exit_codes = await asyncio.to_thread(fleet.stop)
    user.ledger.read_logs(fleet.logs)
