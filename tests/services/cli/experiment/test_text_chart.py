"""Pictures fit the terminal, with Unicode and without."""

from __future__ import annotations

import pytest

from schemas.records.evidence import Band, HistoryPoint
from services.cli.experiment.view import columns, effect_chart, evidence_chart


def history(units: int) -> list[HistoryPoint]:
    return [
        HistoryPoint(
            units=unit,
            share=0.5,
            band=Band(effect=0.05, low=0.05 - 1 / unit, high=min(1.0, 0.05 + 1 / unit)),
            gain=float(unit),
            harm=1 / unit,
        )
        for unit in range(1, units + 1)
    ]


@pytest.mark.parametrize("width", [24, 40, 80, 200])
@pytest.mark.parametrize("units", [1, 5, 400])
def test_no_line_is_wider_than_the_terminal(width: int, units: int) -> None:
    pictures = effect_chart(history(units), width=width), evidence_chart(history(units), threshold=20, width=width)

    assert max(len(line) for picture in pictures for line in picture.splitlines()) <= width


def test_the_band_surrounds_the_estimate_and_narrows() -> None:
    lines = effect_chart(history(100), width=60).splitlines()[:13]

    first, last = ([line[9:][column] if len(line) > 9 + column else " " for line in lines] for column in (0, 50))
    assert last.count("●") == 1
    assert first.count("░") > last.count("░")
    assert sum("┈" in line for line in lines) == 1


def test_the_threshold_is_drawn_and_named() -> None:
    lines = evidence_chart(history(400), threshold=20, width=60).splitlines()

    (threshold,) = (line for line in lines if "┄" in line)
    assert threshold.startswith("      20│")
    assert "▲" in lines[0] + lines[1]


def test_plain_pictures_are_ascii() -> None:
    assert effect_chart(history(50), plain=True).isascii()
    assert evidence_chart(history(50), threshold=20, plain=True).isascii()


def test_nothing_yet_is_a_sentence() -> None:
    assert effect_chart([]) == evidence_chart([], threshold=20) == "no unit has finished yet"


def test_columns_keep_the_last_point() -> None:
    points = history(1000)

    chosen = columns(points, 50)

    assert len(chosen) == 50
    assert (chosen[0], chosen[-1]) == (points[0], points[-1])
