"""Faults of the clock: the wall clock of all services is set, and some time later set back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.faults.disk_faults import Strike
from bench.faults.rig import Rig
from bench.faults.steps import Step

DAY, YEAR = 86_400, 365 * 86_400


def clock_step(seconds: int) -> Strike:
    @asynccontextmanager
    async def strike(rig: Rig, step: Step) -> AsyncIterator[None]:
        rig.preload.set_clock(seconds)
        rig.resume(step.service)
        yield
        rig.preload.set_clock(0)

    return strike
