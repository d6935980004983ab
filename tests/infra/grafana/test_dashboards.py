"""The dashboards: current, every query valid, every metric and label in them really exported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.grafana.generate import FOLDER, documents
from infra.grafana.probe import questions
from ratchet.bus.topology import fleet_topology
from ratchet.service.metrics import OUTCOMES
from services.orchestrator.metrics import MOVES
from services.trainer.worker import FIGURES
from tests.infra.exported_metrics import TARGET_LABELS, exported
from tests.infra.promql import named
from tests.infra.promtool import run_promtool

PROVISIONED = FOLDER.parent / "provisioning" / "datasources" / "ratchet.yml"
NAMED = re.compile(r'\b(figure|measure|move|queue|outcome|stage|statistic)(?:=|!=|=~|!~)"([^"]+)"')
DOCUMENTS = {path.stem: json.loads(text) for path, text in documents().items()}


def _panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, document in DOCUMENTS.items():
        for panel in document["panels"]:
            if panel["type"] != "row":
                yield f"{name}: {panel['title']}", panel


PANELS = dict(_panels())
QUERIES = list(questions())


def test_the_files_are_current() -> None:
    stale = [path.name for path, text in documents().items() if not path.exists() or path.read_text() != text]

    assert stale == [], "type `python -m infra.grafana.generate`"
    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in documents()}


def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, (_, expr) in enumerate(QUERIES)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    run = run_promtool("check", "rules", "panels.yml", folder=tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    assert len(QUERIES) > 50


@pytest.mark.parametrize(("title", "expr"), QUERIES)
def test_every_metric_and_label_of_a_panel_is_exported(title: str, expr: str) -> None:
    asked = named(expr)

    known: set[str] = set(TARGET_LABELS)
    for metric, labels in asked.metrics:
        assert metric in exported(), f"{title}: nobody exports {metric}"
        assert labels <= exported()[metric] | TARGET_LABELS, f"{title}: {metric} has no label of {sorted(labels)}"
        known |= exported()[metric]
    assert asked.metrics
    assert asked.grouping <= known


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown = {metric for _, expr in QUERIES for metric, _ in named(expr).metrics}
    families = {
        name.removesuffix("_total").removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for name in shown
    }

    standard = "ratchet_agent_engine_process_"  # what every process of Prometheus's client says of itself
    ours = {name for name in exported() if name.startswith("ratchet_") and not name.startswith(standard)}
    roots = {name for name in ours if not name.endswith(("_bucket", "_sum", "_count", "_created", "_total"))}

    assert sorted(roots - families) == []


def test_every_value_of_a_label_that_is_asked_for_by_name_is_exported() -> None:
    known = {
        "figure": set(FIGURES),
        "move": set(MOVES),
        "queue": set(fleet_topology(("small",)).names),
        "outcome": set(OUTCOMES),
        "measure": {"served", "single", "distinct"},
        "statistic": {"mean", "low", "high"},
        "stage": {"queue", "generate", "score_queue", "score", "total"},
    }

    asked = {
        (label, value) for _, expr in QUERIES for label, values in NAMED.findall(expr) for value in values.split("|")
    }

    assert {label for label, _ in asked} == set(known)
    assert {(label, value) for label, value in asked if value not in known[label]} == set()


def test_every_panel_says_what_it_shows_and_asks_a_source_that_is_provisioned() -> None:
    sources = {source["uid"] for source in yaml.safe_load(PROVISIONED.read_text())["datasources"]}

    assert [title for title, panel in PANELS.items() if not panel.get("description")] == []
    assert {panel["datasource"]["uid"] for panel in PANELS.values()} == sources


def test_every_title_of_a_dashboard_is_its_own() -> None:
    assert len(PANELS) == len(list(_panels()))


def test_no_panel_lies_on_another() -> None:
    for name, document in DOCUMENTS.items():
        cells = [
            (x, y)
            for panel in document["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]

        assert len(cells) == len(set(cells)), name
        assert max(x for x, _ in cells) < 24, name
