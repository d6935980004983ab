"""The figures and the picture of `ratchet demo --cascade`, from a log that a house made."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from demos.cascade.demo import MARGIN, CascadeDemo, CascadeFigures, Served, read_served, windows
from demos.cascade.picture import picture
from demos.sort.demo import SIZES
from ratchet.experiments.gain import gain
from services.cli.fleet.options import BIG_AGENT, FleetOptions
from services.cli.fleet.own_fleet import FleetPlace
from tests.services.orchestrator.cascade.cascade_house import cascade_house

BETTER = gain({"a": [0.0] * 8, "b": [0.0] * 8}, {"a": [1.0] * 8, "b": [1.0] * 8})


def served(count: int, *, by_small: bool, right: float, cost: float, begin: int = 0) -> list[Served]:
    return [
        Served(begin + number, by_small, number < right * count, cost, None if by_small else cost)
        for number in range(count)
    ]


def figures(*parts: list[Served]) -> CascadeFigures:
    return CascadeFigures(gain=BETTER, windows=tuple(windows([one for part in parts for one in part], 100)))


AT_FIRST = served(100, by_small=False, right=0.98, cost=5e-5)
IN_THE_END = served(100, by_small=True, right=0.97, cost=1e-5, begin=100)


def test_a_share_that_rises_at_kept_quality_and_a_smaller_bill_is_what_it_promises() -> None:
    assert list(figures(AT_FIRST, IN_THE_END).faults()) == []


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        (served(100, by_small=False, right=0.98, cost=5e-5), "did not come to answer"),
        (served(100, by_small=True, right=0.7, cost=1e-5), "answers in a row were right"),
        (served(100, by_small=True, right=0.98, cost=6e-5), "costs"),
    ],
)
def test_what_it_promises_could_fail(after: list[Served], fault: str) -> None:
    (found,) = figures(AT_FIRST, after).faults()
    assert fault in found


async def test_the_figures_are_read_off_the_log(tmp_path: Path) -> None:
    async with cascade_house(tmp_path, {"small": 0.7, "big": 0.7}) as fleet:
        await fleet.ask(3, input="sort: gib")
        await fleet.ask(2, input="sort: gib", local_only=True)
    found = read_served(tmp_path)

    assert [(one.order, one.by_small, one.right) for one in found] == [(number, False, False) for number in range(3)]
    a_group, big = 2 * (10 * 0.1 + 3 * 0.4) / 1e6, (10 * 2.5 + 3 * 10.0) / 1e6
    assert [one.cost for one in found] == pytest.approx([a_group + big] * 3), "a group of two, and one big answer"


def test_the_picture_is_an_svg_that_says_what_it_shows() -> None:
    drawn = picture(figures(AT_FIRST, IN_THE_END).windows, MARGIN)
    root = ET.fromstring(drawn)
    said = "".join(root.itertext())
    assert "right: 97.0%" in said and "small: 100%" in said and "cost: 20%" in said
    assert picture([], MARGIN).startswith("<svg")


def test_its_fleet_has_the_bigger_model_as_an_agent(tmp_path: Path) -> None:
    shown = CascadeDemo(sizes=replace(SIZES, tasks=2))
    options = shown.options(FleetOptions(), FleetPlace(tmp_path))
    assert options.own_agents == ("small", BIG_AGENT)
    assert shown.settings(FleetPlace(tmp_path))["RATCHET_PRICES"] == str(tmp_path / "prices.toml")
    assert shown.files().keys() == {"prices.toml"}


def test_the_last_point_of_the_picture_is_of_the_last_tasks_alone() -> None:
    first, last = windows([*served(130, by_small=False, right=1.0, cost=1.0), *IN_THE_END], 100)
    assert (first.tasks, first.share, last.tasks, last.share) == (130, 0.0, 100, 1.0)
