"""What the pictures of the dashboards are checked for. That they are made: `make dashboard-images`, which needs npm."""

from __future__ import annotations

import json

from infra.grafana.generate import documents
from tests.acceptance.dashboard_images import EMPTY_BY_RIGHT, lacking

DRIFT = "Drift of the scorer"


def test_a_panel_without_data_and_a_query_in_error_are_named() -> None:
    panels = [
        {"title": "Fed", "queries": [{"expr": "up", "series": 2}]},
        {"title": "Half fed", "queries": [{"expr": "up", "series": 2}, {"expr": "down", "series": 0}]},
        {"title": "Wrong", "queries": [{"expr": "up{", "series": 0, "error": "parse error"}]},
        {"title": DRIFT, "queries": [{"expr": "drift", "series": 0}]},
    ]

    assert list(lacking("learning", panels)) == [
        "learning: Half fed: no data (down)",
        "learning: Wrong: parse error (up{)",
    ]


def test_an_error_is_named_even_where_a_panel_may_be_empty() -> None:
    panels = [{"title": DRIFT, "queries": [{"expr": "drift", "series": 0, "error": "timed out"}]}]

    assert list(lacking("learning", panels)) == [f"learning: {DRIFT}: timed out (drift)"]


def test_what_may_be_empty_are_panels_that_there_are() -> None:
    titles = {
        f"{path.stem}: {panel['title']}" for path, text in documents().items() for panel in json.loads(text)["panels"]
    }

    assert set(EMPTY_BY_RIGHT) <= titles
