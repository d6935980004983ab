"""Faults of processes: a service or the broker is killed or halted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.faults.rig import Rig
from bench.faults.steps import Step
from tests.acceptance.fleet import FleetError

TAKE_OVER_S = 60.0
LEAVE_S = 30.0


@asynccontextmanager
async def kill(rig: Rig, step: Step) -> AsyncIterator[None]:
    rig.kill(step.service)
    yield


@asynccontextmanager
async def halt(rig: Rig, step: Step) -> AsyncIterator[None]:
    yield
    rig.resume(step.service)


@asynccontextmanager
async def halt_leader(rig: Rig, step: Step) -> AsyncIterator[None]:
    """A standby takes over from the orchestrator that hangs; continued, that one has to leave by itself."""
    hangs = rig.fleet[step.service]
    standby = await asyncio.to_thread(rig.start_standby)
    try:
        await asyncio.to_thread(standby.wait_until_ready, TAKE_OVER_S)
        rig.lead(standby)
    except FleetError as error:
        rig.complaints.append(f"{step.name}: no standby took over within {TAKE_OVER_S:.0f} s: {error}")
        standby.kill()
    yield
    rig.supervisor.resume(hangs)
    if rig.fleet[step.service] is standby and not await rig.supervisor.ended(hangs, LEAVE_S):
        rig.complaints.append(f"{step.name}: the orchestrator that hung works on beside its successor")
        hangs.kill()


@asynccontextmanager
async def kill_broker(rig: Rig, step: Step) -> AsyncIterator[None]:
    await asyncio.to_thread(rig.broker.kill)
    rig.resume(step.service)
    yield
    await asyncio.to_thread(rig.broker.start)
