"""A cool-down lasts as long as it lasts, whatever becomes of the wall clock: on a clock that is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.orchestrator.promotion.experiment_transitions import CoolDown

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY, YEAR = timedelta(days=1), timedelta(days=365)


@pytest.mark.parametrize("step", [DAY, -DAY, YEAR, -YEAR])
def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_it(step: timedelta) -> None:
    cool_down, until = CoolDown(HOUR), NOON + HOUR
    assert cool_down.now(until, NOON, 500.0) == NOON

    for seconds in (1.0, 1_800.0, 3_599.0):
        assert cool_down.now(until, NOON + step, 500.0 + seconds) < until
    assert cool_down.now(until, NOON + step, 500.0 + 3_600.0) >= until


@pytest.mark.parametrize("wall", [NOON - YEAR, NOON - DAY, NOON])
def test_of_one_that_is_met_at_a_start_no_more_than_the_whole_is_left(wall: datetime) -> None:
    cool_down, until = CoolDown(HOUR), NOON + HOUR

    assert cool_down.now(until, wall, 7.0) < until
    assert cool_down.now(until, wall, 7.0 + 3_600.0) >= until


def test_without_one_the_wall_clock_is_as_it_is() -> None:
    assert CoolDown(HOUR).now(None, NOON, 0.0) == NOON


def test_another_one_is_counted_anew() -> None:
    cool_down = CoolDown(HOUR)
    cool_down.now(NOON + HOUR, NOON, 0.0)

    assert cool_down.now(NOON + 3 * HOUR, NOON + 2 * HOUR, 7_200.0) < NOON + 3 * HOUR
    assert cool_down.now(NOON + 3 * HOUR, NOON + 2 * HOUR, 10_800.0) >= NOON + 3 * HOUR
