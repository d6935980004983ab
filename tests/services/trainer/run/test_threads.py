"""A training looks at the machine before each step, and takes the threads that are worth having then."""

from __future__ import annotations

import os

from ratchet.models.cpu_threads import LOOK_AGAIN_S, CpuThreads, CpuUse, cores_allowed, threads_for
from services.trainer.run.progress import FreeThreads

REAL = 135_000_000


def test_threads_follow_what_others_leave_free() -> None:
    cores = os.cpu_count() or 1
    clock, told = [0.0], list[int]()
    idle, busy = CpuUse(10, 10.0 * cores, 10.0 * cores), CpuUse(20, 20.0 * cores, 10.0 * cores)
    uses = iter([CpuUse(0, 0, 0), idle, busy])
    callback = FreeThreads(CpuThreads(REAL, told.append, use=lambda: next(uses), clock=lambda: clock[0]))
    free = threads_for(REAL, cores_allowed(), cores, 0.0)

    for at in (0.0, LOOK_AGAIN_S, 2 * LOOK_AGAIN_S):
        clock[0] = at
        callback.on_step_begin(None, None, None)

    assert told == ([1, free, 1] if free > 1 else [1])
