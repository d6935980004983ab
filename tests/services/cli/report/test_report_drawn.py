"""The report as a browser draws it from a disk, without a network; and the parts it is drawn by, one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from ratchet.adapters.manifest import TRAINING_REPORT
from ratchet.page.bundle import bundle
from services.cli.report.command import Report, gather, page
from tests.acceptance.browser import NARROW, WIDE, Visit, chromium, visiting
from tests.services.cli.report.test_report_command import copy
from tests.services.cli.whole_loop import WholeLoop

__all__ = ["copy"]

TARGETS = "all => all.map(one => decodeURIComponent(one.getAttribute('href').slice(1)))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def open_report(visit: Visit, report: Report, folder: Path) -> Page:
    """Its file, in a browser without a network."""
    target = folder / "report.html"
    target.write_text(page(report))
    visit.page.context.set_offline(True)
    visit.page.goto(target.as_uri())
    visit.page.wait_for_selector("h1")
    return visit.page


def test_a_whole_loop_is_drawn_from_a_disk(browser: Browser, copy: Path, tmp_path: Path) -> None:
    for size, theme in ((WIDE, "light"), (NARROW, "dark")):
        with visiting(browser, tmp_path.as_uri(), size=size, theme=theme) as visit:
            drawn = open_report(visit, gather(copy, copy / "adapters"), tmp_path)

            said = drawn.inner_text("main")
            assert "The candidate is proved better: it becomes the primary." in said
            assert "Neither proved nor refuted yet: the experiment goes on." in said
            assert "set RATCHET_EXPERIMENT_MIN_AGE_S to a week (604800)" in said
            assert "onerror=alert(1)>" in said and drawn.locator("img").count() == 0
            assert {"superseded", "stable", "rolled back", "canary"} <= set(said.split("\n"))
            assert drawn.locator("canvas").count() == 2 + 2 * 3 + 3
            assert drawn.evaluate("document.documentElement.scrollWidth") == size[0]
            assert visit.complaints() == []


def test_every_link_leads_to_a_place_on_the_page_or_to_a_version_that_has_none(
    browser: Browser, copy: Path, tmp_path: Path
) -> None:
    with visiting(browser, tmp_path.as_uri()) as visit:
        drawn = open_report(visit, gather(copy, copy / "adapters"), tmp_path)

        targets = drawn.eval_on_selector_all(
            "main a", "all => all.map(one => decodeURIComponent(one.getAttribute('href').slice(1)))"
        )
        ids = set(drawn.eval_on_selector_all("[id]", "all => all.map(one => one.id)"))

        assert set(targets) - ids <= {"/adapters/small/v1.0.0"}


def test_with_nothing_at_all_it_says_what_to_type(browser: Browser, tmp_path: Path) -> None:
    with visiting(browser, tmp_path.as_uri()) as visit:
        drawn = open_report(visit, gather(tmp_path, tmp_path / "adapters", ["small"]), tmp_path)

        assert {'ratchet submit "your task"', "ratchet train"} <= set(drawn.locator("code").all_inner_texts())
        assert visit.complaints() == []


def test_curves_of_any_kind_are_drawn(browser: Browser, loop: WholeLoop, copy: Path, tmp_path: Path) -> None:
    odd = [{"step": 1, "loss": -1e9, "kl": 1e-30, "reward": 0.5}, {"step": 2, "loss": 1e9, "kl": 0, "reward": 0.5}]
    (copy / "adapters" / "small" / "v1.0.1" / TRAINING_REPORT).write_text(json.dumps({"steps": odd}))
    with visiting(browser, tmp_path.as_uri()) as visit:
        open_report(visit, gather(copy, copy / "adapters"), tmp_path)

        assert visit.complaints() == []


def module(browser: Browser, name: str, expression: str, given: Any = None) -> Any:
    context = browser.new_context()
    try:
        blank = context.new_page()
        blank.add_script_tag(content=bundle(name))
        return blank.evaluate(f"given => ({expression})", given)
    finally:
        context.close()


def placed(browser: Browser, *versions: tuple[str, str | None, str]) -> dict[str, tuple[int, int]]:
    given = [{"version": version, "parent": parent, "state": state} for version, parent, state in versions]
    places = module(browser, "parts/lineage.js", "[...parts_lineage_js.placed(given)]", given)
    return {version: (place["column"], place["row"]) for version, place in places}


def test_the_version_that_took_over_goes_on_in_its_parents_row(browser: Browser) -> None:
    places = placed(
        browser,
        ("v1.0.0", None, "superseded"),
        ("v1.0.1", "v1.0.0", "rejected"),
        ("v1.0.2", "v1.0.0", "stable"),
        ("v1.0.3", "v1.0.2", "rejected"),
        ("v1.0.4", "v1.0.2", "rejected"),
    )

    assert places == {"v1.0.0": (0, 0), "v1.0.2": (1, 0), "v1.0.3": (2, 0), "v1.0.4": (2, 1), "v1.0.1": (1, 2)}


def test_a_version_whose_parent_is_not_shown_begins_a_tree(browser: Browser) -> None:
    places = placed(browser, ("v1.0.8", "v1.0.7", "rejected"), ("v1.0.9", "v1.0.8", "rejected"))

    assert places == {"v1.0.8": (0, 0), "v1.0.9": (1, 0)}


def test_no_two_versions_share_a_place(browser: Browser) -> None:
    family = [("v1.0.0", None, "rejected"), *((f"v1.0.{n}", f"v1.0.{n // 3}", "rejected") for n in range(1, 40))]

    places = placed(browser, *family)

    assert len(set(places.values())) == len(places) == 40


def test_the_rises_of_the_share_are_marked_and_its_rounding_is_not(browser: Browser) -> None:
    shares = [0.05, 0.05 + 1e-16, 0.05, 0.25, 0.05, 0.25, 0.5]
    history = [{"units": units, "share": share} for units, share in enumerate(shares, 1)]

    marks = module(browser, "parts/experiment.js", "parts_experiment_js.rises(given)", history)

    assert marks == [[4, "25 %"], [7, "50 %"]]


def test_e_values_are_written_as_people_do(browser: Browser) -> None:
    values = [0.001, 0.352, 22.23, 1760.4, 758_100.0, 1e300]

    words = module(browser, "core/format.js", "given.map(core_format_js.eValue)", values)

    assert words == ["< 0.01", "0.35", "22.2", "1,760", "7.6×10⁵", "10³⁰⁰"]


@pytest.mark.parametrize(
    ("values", "low", "high"), [([], 0, 1), ([0.5], 0.45, 0.55), ([0.2, 0.8], 0.14, 0.86), ([0, 1], 0, 1)]
)
def test_a_range_of_scores_has_room_and_stays_within_0_and_1(
    browser: Browser, values: list[float], low: float, high: float
) -> None:
    assert module(browser, "parts/scores.js", "parts_scores_js.padded(given)", values) == pytest.approx([low, high])


def test_the_last_period_counts_once_it_is_half_full_and_one_without_a_score_not(browser: Browser) -> None:
    periods = [
        {"tasks": 4, "mean": 0.5},
        {"tasks": 4, "mean": None},
        {"tasks": 4, "mean": 0.7},
        {"tasks": 1, "mean": 1},
    ]

    course = module(browser, "parts/scores.js", "parts_scores_js.course(given)", periods)

    assert course == {"tasks": 13, "x": [2, 10], "means": [0.5, 0.7]}
