from __future__ import annotations

import os

import pytest

from ratchet.models.cpu_threads import LOOK_AGAIN_S, CpuThreads, CpuUse, cores_allowed, threads_for

SMALL, REAL = 700_000, 135_000_000


@pytest.mark.parametrize(
    ("parameters", "cores", "machine", "others", "threads"),
    [
        (SMALL, 8, 8, 0.0, 1),
        (REAL, 8, 8, 0.0, 8),
        (REAL, 2, 2, 0.2, 2),
        (REAL, 2, 2, 0.5, 1),
        (REAL, 2, 2, 9.0, 1),
        (REAL, 2, 64, 40.0, 2),
        (REAL, 0.5, 64, 0.0, 1),
    ],
)
def test_threads_are_the_cores_that_are_free(
    parameters: int, cores: float, machine: int, others: float, threads: int
) -> None:
    assert threads_for(parameters, cores, machine, others) == threads


def test_they_follow_what_others_do_and_own_work_is_no_other_s() -> None:
    cores = os.cpu_count() or 1
    clock, told = [0.0], list[int]()
    uses = iter([CpuUse(0, 0, 0), CpuUse(10, 10.0 * cores, 10.0 * cores), CpuUse(20, 20.0 * cores, 10.0 * cores)])
    threads = CpuThreads(REAL, told.append, use=lambda: next(uses), clock=lambda: clock[0])
    threads.look()
    assert told == [1]
    clock[0] += LOOK_AGAIN_S
    threads.look()
    assert threads.threads == threads_for(REAL, cores_allowed(), cores, 0.0)
    clock[0] += LOOK_AGAIN_S
    threads.look()
    assert threads.threads == 1


def test_where_nothing_is_known_it_stays_with_one() -> None:
    clock = [0.0]
    threads = CpuThreads(REAL, lambda _: None, use=lambda: None, clock=lambda: clock[0])
    clock[0] += LOOK_AGAIN_S
    threads.look()
    assert threads.threads == 1


def test_this_machine_can_be_asked() -> None:
    use = CpuUse.now()
    assert use is None or use.machine > 0
    assert cores_allowed() > 0
