"""Which segment goes next: as a table, and, over generated logs, what must hold whatever they are like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.logs.names import ASSIGNMENTS, INTERACTIONS
from ratchet.logs.retention.needs import Need, Needs
from ratchet.logs.retention.plan import SETTLING_S, AgeClock, Bound, Held, Instant, Part, Planner, Removal
from ratchet.logs.segments import Segment

NOW = datetime(2031, 1, 1, tzinfo=UTC)
FREE = Needs(None, ())


def part(log: str, number: int, *, compressed: bool = True) -> Part:
    """The `number`-th segment of a log: 100 bytes, an hour of lines."""
    segment = Segment(Path("logs"), log, number * 100, number * 100 + 100, compressed)
    first = NOW - timedelta(hours=10 - number)
    return Part(segment, 100, first, first + timedelta(hours=1))


def tasks_up_to(segment: Segment) -> int:
    """Ten tasks for each segment of either log; those of interactions end with tasks of the next assignments."""
    return segment.end // 10 - 1 + (5 if segment.name == INTERACTIONS else 0)


def decided(
    bound: Bound, needs: Needs, parts: dict[str, list[Part]], disk_bytes: int = 1000, sequence: int = 0
) -> Removal | Held | None:
    return Planner(bound, needs, tasks_up_to).next(parts, disk_bytes, sequence, NOW)


BOTH = {ASSIGNMENTS: [part(ASSIGNMENTS, 0), part(ASSIGNMENTS, 1)], INTERACTIONS: [part(INTERACTIONS, 0)]}


@pytest.mark.parametrize(
    ("bound", "goes"),
    [
        (Bound(0), False),
        (Bound(1000), False),
        (Bound(999), True),
        (Bound(0, timedelta(hours=10)), False),
        (Bound(0, timedelta(hours=8)), True),
        (Bound(1000, timedelta(hours=8)), True),
    ],
)
def test_what_is_over_a_bound_goes(bound: Bound, goes: bool) -> None:
    assert isinstance(decided(bound, FREE, BOTH), Removal) == goes


def test_assignments_go_first_and_the_numbers_of_their_tasks_with_them() -> None:
    assert decided(Bound(1), FREE, BOTH) == Removal(part(ASSIGNMENTS, 0), sequence=10)


def test_interactions_go_once_the_assignments_of_all_their_tasks_are_gone() -> None:
    left = {ASSIGNMENTS: [part(ASSIGNMENTS, 1)], INTERACTIONS: [part(INTERACTIONS, 0)]}

    assert decided(Bound(1), FREE, left, sequence=10) == Removal(part(ASSIGNMENTS, 1), sequence=20)
    assert decided(Bound(1), FREE, {INTERACTIONS: [part(INTERACTIONS, 0)]}, sequence=20) == Removal(
        part(INTERACTIONS, 0), sequence=20
    )
    held = decided(Bound(1), FREE, {INTERACTIONS: [part(INTERACTIONS, 0)]}, sequence=10)
    assert isinstance(held, Held)
    assert "assignments" in held.why


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (Needs(9, ()), "task number 9 is open, or its user is not told yet"),
        (Needs(None, (Need(ASSIGNMENTS, 99, "an experiment"),)), "an experiment"),
        (Needs(None, (Need(ASSIGNMENTS, 99, "a later training", yields=True),)), "a later training"),
    ],
)
def test_what_is_needed_stays(needs: Needs, why: str) -> None:
    assert decided(Bound(999), needs, BOTH) == Held(part(ASSIGNMENTS, 0), why)


@pytest.mark.parametrize(
    "needs", [Needs(10, ()), Needs(None, (Need(ASSIGNMENTS, 100, "x"),)), Needs(None, (Need(INTERACTIONS, 0, "x"),))]
)
def test_what_is_needed_later_or_in_the_other_log_does_not_hold_it(needs: Needs) -> None:
    assert isinstance(decided(Bound(999), needs, BOTH), Removal)


def test_a_window_nobody_asked_for_yet_yields_at_twice_the_bound() -> None:
    later = Needs(None, (Need(ASSIGNMENTS, 0, "a later training", yields=True),))

    assert isinstance(decided(Bound(500), later, BOTH, disk_bytes=1000), Held)
    assert isinstance(decided(Bound(499), later, BOTH, disk_bytes=1000), Removal)


def test_what_is_being_compressed_waits() -> None:
    assert isinstance(decided(Bound(1), FREE, {ASSIGNMENTS: [part(ASSIGNMENTS, 0, compressed=False)]}), Held)


@given(
    first_open=st.none() | st.integers(0, 80),
    positions=st.lists(st.tuples(st.sampled_from([ASSIGNMENTS, INTERACTIONS]), st.integers(0, 900)), max_size=3),
    keep=st.integers(1, 1500),
)
def test_in_the_end_nothing_needed_is_gone_and_no_answer_without_its_assignment(
    first_open: int | None, positions: list[tuple[str, int]], keep: int
) -> None:
    needs = Needs(first_open, tuple(Need(log, position, "somebody") for log, position in positions))
    parts = {log: [part(log, number) for number in range(8)] for log in (ASSIGNMENTS, INTERACTIONS)}
    disk, sequence, gone = 1600, 0, list[Part]()

    while isinstance(step := decided(Bound(keep), needs, parts, disk, sequence), Removal):
        gone.append(parts[step.part.segment.name].pop(0))
        assert gone[-1] == step.part
        disk, sequence = disk - step.part.disk_bytes, step.sequence
        assert all(
            need.log != step.part.segment.name or need.position >= step.part.segment.end for need in needs.windows
        )

    assert first_open is None or sequence <= first_open
    assert all(tasks_up_to(one.segment) < sequence for one in gone)
    assert step is not None or disk <= keep or not any(parts.values())


DAY, YEAR = timedelta(days=1), timedelta(days=365)


def present_after(*steps: tuple[float, timedelta], newest: datetime | None = NOW) -> datetime | None:
    """Of a clock that started at NOW: `steps` are seconds that pass, and what the wall clock is set forward then."""
    wall, monotonic = NOW, 100.0
    clock = AgeClock.start(newest, Instant(wall, monotonic))
    for seconds, set_by in steps:
        wall, monotonic = wall + timedelta(seconds=seconds) + set_by, monotonic + seconds
        clock = clock.at(Instant(wall, monotonic))
    return clock.present


SETTLED = SETTLING_S + 1
NO_STEP = timedelta()


@pytest.mark.parametrize(
    ("steps", "newest", "present"),
    [
        ([(0, NO_STEP)], NOW, None),
        ([(SETTLING_S - 1, NO_STEP)], NOW, None),
        ([(SETTLED, NO_STEP)], NOW, timedelta(seconds=SETTLED)),
        ([(SETTLED, NO_STEP)], None, timedelta(seconds=SETTLED)),
        ([(SETTLED, NO_STEP)], NOW - YEAR, timedelta(seconds=SETTLED) - YEAR),
        ([(SETTLED, NO_STEP)], NOW + YEAR, timedelta(seconds=SETTLED)),
        ([(SETTLED, DAY)], NOW, None),
        ([(SETTLED, DAY), (3, -DAY)], NOW, None),
        ([(SETTLED, DAY), (3, -DAY), (SETTLED, NO_STEP)], NOW, timedelta(seconds=2 * SETTLED + 3)),
        ([(SETTLED, YEAR), (SETTLED, NO_STEP)], NOW, timedelta(seconds=2 * SETTLED)),
        ([(SETTLED, -DAY), (SETTLED, NO_STEP)], NOW, timedelta(seconds=2 * SETTLED) - DAY),
        ([(30, timedelta(seconds=1))] * 30, NOW, timedelta(seconds=900)),
    ],
)
def test_what_ages_are_counted_from(
    steps: list[tuple[float, timedelta]], newest: datetime | None, present: timedelta | None
) -> None:
    """Ages are counted as time since NOW."""
    assert present_after(*steps, newest=newest) == (None if present is None else NOW + present)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.sampled_from([NO_STEP, DAY, -DAY, YEAR, -YEAR])), max_size=20))
def test_no_setting_of_the_wall_clock_makes_a_line_older_than_it_is(steps: list[tuple[float, timedelta]]) -> None:
    passed = timedelta(seconds=sum(seconds for seconds, _ in steps) + 1e-3)

    assert (present_after(*steps) or NOW) <= NOW + passed
