"""Scales, ticks and lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.cli.report.plot import Frame, Scale, ticks
from tests.ratchet.cli.report.reading_html import ReadPage

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


def test_a_scale_turns_values_into_pixels_and_keeps_them_inside() -> None:
    up = Scale(0.0, 10.0, 100.0, 0.0)

    assert [up(value) for value in (0.0, 5.0, 10.0, 99.0, -1.0)] == [100.0, 50.0, 0.0, 0.0, 100.0]


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-0.3, 0.3, [-0.2, 0.0, 0.2]),
        (0.0, 1760.0, [0.0, 500.0, 1000.0, 1500.0]),
        (3.0, 3.0, [3.0]),
    ],
)
def test_ticks_are_round(low: float, high: float, values: list[float]) -> None:
    assert ticks(low, high) == values


@given(NUMBERS, st.floats(1e-3, 1e6))
def test_ticks_go_up_and_stay_inside(low: float, span: float) -> None:
    values = ticks(low, low + span)

    assert values == sorted(set(values))
    assert len(values) <= 11
    assert all(low - 1e-6 * span <= value <= low + span * (1 + 1e-6) for value in values)


def test_a_line_is_left_out_where_it_leaves_the_plot() -> None:
    frame = Frame.over((0.0, 3.0), (0.0, 1.0))

    (shape,) = ReadPage(frame.line([(0, 0.5), (1, 7.0), (2, 0.5), (3, 1.0)], "line")).all("d")

    assert shape.count("M") == 2
    assert shape.count("L") == 1
