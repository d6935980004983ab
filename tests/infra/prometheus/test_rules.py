"""The alert rules: valid, each tested, each on metrics that are exported, each with a section to read at night."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.exported_metrics import TARGET_LABELS, exported
from tests.infra.promql import named
from tests.infra.promtool import run_promtool

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "infra" / "prometheus"


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


RULES = {rule["alert"]: rule for rule in _rules()}


@pytest.mark.parametrize(
    "command", ["check rules rules.yml", "check config prometheus.yml", "test rules rules_test.yml"]
)
def test_promtool_finds_nothing_wrong(command: str) -> None:
    run = run_promtool(*command.split(), folder=FOLDER)

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_rules_test_bites(tmp_path: Path) -> None:
    rules = (FOLDER / "rules.yml").read_text()
    weakened = rules.replace('delta(ratchet_queue_messages{queue="dead-letters"}[15m]) > 0', "vector(1) > 2")
    assert weakened != rules
    (tmp_path / "rules.yml").write_text(weakened)
    (tmp_path / "rules_test.yml").write_text((FOLDER / "rules_test.yml").read_text())

    run = run_promtool("test", "rules", "rules_test.yml", folder=tmp_path)

    assert run.returncode != 0
    assert "RatchetDeadLettersGrow" in run.stdout + run.stderr


def test_every_alert_is_seen_to_fire_and_to_be_silent() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    expected = [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]

    assert {alert for alert, fires in expected if fires} == set(RULES)
    assert {alert for alert, fires in expected if not fires} == set(RULES)


@pytest.mark.parametrize("alert", RULES)
def test_every_metric_and_label_of_a_rule_is_exported(alert: str) -> None:
    asked = named(RULES[alert]["expr"])

    known: set[str] = set(TARGET_LABELS)
    for metric, labels in asked.metrics:
        assert metric in exported(), f"{alert}: nobody exports {metric}"
        assert labels <= exported()[metric] | TARGET_LABELS, f"{alert}: {metric} has no label {sorted(labels)}"
        known |= exported()[metric]
    assert asked.metrics
    assert asked.grouping <= known


@pytest.mark.parametrize("alert", RULES)
def test_every_alert_has_its_section_in_the_runbook(alert: str) -> None:
    page, _, anchor = RULES[alert]["annotations"]["runbook_url"].partition("#")

    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)

    assert alert in headings
    assert anchor == alert.lower()


def test_every_section_of_an_alert_belongs_to_a_rule() -> None:
    headings = re.findall(r"^#+ (Ratchet[A-Z]\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)

    assert sorted(headings) == sorted(RULES)


def test_only_three_severities_are_known() -> None:
    assert {rule["labels"]["severity"] for rule in RULES.values()} == {"critical", "warning", "info"}
