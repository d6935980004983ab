"""What the pictures show, read back from the SVG."""

from __future__ import annotations

import re

import pytest

from ratchet.cli.report.experiment_charts import e_words, effect_chart, evidence_chart
from ratchet.cli.report.line_chart import line_chart
from ratchet.cli.report.lineage_chart import lineage_chart, placed
from ratchet.cli.report.markup import Markup
from ratchet.cli.report.score_charts import timeline_chart, versions_chart
from ratchet.cli.report.score_stats import Mean, Timeline
from ratchet.experiments.experiment import Experiment
from schemas.records.adapter_state import AdapterState
from schemas.records.evidence import Band, HistoryPoint
from schemas.records.registry import AdapterEntry
from tests.ratchet.cli.report.reading_html import ReadPage
from tests.ratchet.experiments.making_experiments import HALF, Traffic, plan, run

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf", re.IGNORECASE)


def numbers_inside(chart: Markup) -> ReadPage:
    """Every point of every element lies in the picture."""
    page = ReadPage(chart)
    width, height = map(float, page.all("viewbox")[0].split()[2:])
    for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height), ("cy", height)):
        assert all(0 <= float(value) <= most for value in page.all(name)), name
    for shape in page.all("d"):
        if "l" not in shape:
            values = [float(value) for value in NUMBER.findall(shape)]
            assert all(0 <= x <= width for x in values[::2])
            assert all(0 <= y <= height for y in values[1::2])
    return page


def history(effect: float, units: int = 300) -> tuple[HistoryPoint, ...]:
    return run(Experiment(plan(ramp=HALF)), Traffic(effect=effect), units).history


def point(units: int, **fields: object) -> HistoryPoint:
    band = Band(effect=0.1, low=-0.2, high=0.4)
    return HistoryPoint.model_validate({"units": units, "share": 0.05, "band": band, "gain": 1.0, "harm": 1.0} | fields)


def entry(version: str, parent: str | None, state: AdapterState = AdapterState.REJECTED) -> AdapterEntry:
    return AdapterEntry(version=version, state=state, parent=parent)


def mean_of(*values: float) -> Mean:
    mean = Mean()
    for value in values:
        mean.add(value)
    return mean


@pytest.mark.parametrize("effect", [0.2, 0.0, -0.3])
def test_an_experiments_pictures_say_what_the_history_says(effect: float) -> None:
    course = history(effect)

    drawn = numbers_inside(effect_chart(course, "v1.0.1", "v1.0.0"))
    evidence = numbers_inside(evidence_chart(course, plan(ramp=HALF)))

    assert f"{course[-1].band.effect:+.3f}" in drawn.text
    assert f"harm {e_words(course[-1].harm)}" in evidence.text
    assert f"better {e_words(course[-1].gain)}" in evidence.text
    assert "verdict at 20" in evidence.text


def test_one_unit_is_enough_for_a_picture_and_extreme_e_values_stay_in_it() -> None:
    numbers_inside(effect_chart([point(1)], "v1.0.1", "v1.0.0"))
    numbers_inside(evidence_chart([point(1), point(2, gain=1e300, harm=0.0)], plan()))


def test_the_rises_of_the_share_are_marked_and_its_rounding_is_not() -> None:
    shares = [0.05, 0.05 + 1e-16, 0.05, 0.25, 0.05, 0.25, 0.5]
    course = [point(units, share=share) for units, share in enumerate(shares, 1)]

    drawn = ReadPage(effect_chart(course, "v1.0.1", "v1.0.0"))

    assert [text for text in drawn.texts if text.endswith("%")] == ["25%", "50%"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (0.352, "0.35"), (22.23, "22.2"), (1760.4, "1,760"), (758_100.0, "7.6×10⁵"), (1e300, "10³⁰⁰")],
)
def test_e_values_are_written_as_people_do(value: float, words: str) -> None:
    assert e_words(value) == words


def test_a_version_is_drawn_at_its_mean_with_its_tasks() -> None:
    live = {"v1.0.0": mean_of(0.2, 0.4), "v1.0.1": mean_of(0.6, 0.8, 0.7)}

    drawn = numbers_inside(versions_chart(["v1.0.0", "v1.0.1", "v1.0.2"], live, {}, ["v1.0.0", "v1.0.1"]))

    assert {"0.300", "0.700", "2", "3"} <= set(drawn.texts)
    assert "v1.0.2" not in drawn.text
    heights = [float(attributes["cy"]) for name, attributes in drawn.elements if name == "circle"]
    assert heights[0] > heights[1]


@pytest.mark.parametrize("tasks", [1, 2, 500])
def test_the_course_shows_who_answered(tasks: int) -> None:
    timeline = Timeline()
    for number in range(tasks):
        timeline.add("2026-01-05T12:00:00Z", "v1.0.0" if number < tasks / 2 else "v1.0.1", number / tasks)

    drawn = numbers_inside(timeline_chart(timeline.periods, ["v1.0.0", "v1.0.1"]))

    assert sum(int(words.split(": ")[1].split(" ")[0]) for words in drawn.texts if " tasks, from " in words) == tasks


def test_a_course_without_any_score_is_drawn_too() -> None:
    timeline = Timeline()
    timeline.add("2026-01-05T12:00:00Z", "v1.0.0", None)

    numbers_inside(timeline_chart(timeline.periods, ["v1.0.0"]))


def test_the_version_that_took_over_goes_on_in_its_parents_row() -> None:
    family = [
        entry("v1.0.0", None, AdapterState.SUPERSEDED),
        entry("v1.0.1", "v1.0.0"),
        entry("v1.0.2", "v1.0.0", AdapterState.STABLE),
        entry("v1.0.3", "v1.0.2"),
        entry("v1.0.4", "v1.0.2"),
    ]

    places = placed(family)

    assert places == {"v1.0.0": (0, 0), "v1.0.2": (1, 0), "v1.0.3": (2, 0), "v1.0.4": (2, 1), "v1.0.1": (1, 2)}
    drawn = numbers_inside(lineage_chart(family, {"v1.0.2": mean_of(0.5)}))
    assert len([name for name, _ in drawn.elements if name == "rect"]) == 5
    assert "0.500" in drawn.texts


def test_a_version_whose_parent_is_not_shown_begins_a_tree() -> None:
    assert placed([entry("v1.0.8", "v1.0.7"), entry("v1.0.9", "v1.0.8")]) == {"v1.0.8": (0, 0), "v1.0.9": (1, 0)}


def test_no_two_versions_share_a_place() -> None:
    family = [entry("v1.0.0", None), *(entry(f"v1.0.{n}", f"v1.0.{n // 3}") for n in range(1, 40))]

    places = placed(family)

    assert len(set(places.values())) == len(places) == 40


@pytest.mark.parametrize("points", [[(1.0, 0.5)], [(1.0, 0.0), (2.0, 0.0)], [(0.0, -1e9), (1.0, 1e9)]])
def test_a_curve_of_any_kind_stays_in_its_picture(points: list[tuple[float, float]]) -> None:
    numbers_inside(line_chart(points, "loss"))
