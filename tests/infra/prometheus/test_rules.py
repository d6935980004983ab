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
RULES_TESTS = "rules_test.yml", "rules_test_hours.yml"


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


RULES = {rule["alert"]: rule for rule in _rules() if "alert" in rule}
RECORDED = {
    rule["record"]: frozenset({"job", "instance", "queue", "agent", "objective"})
    for rule in _rules()
    if "record" in rule
}
FLEET = 'fleet="ratchet"'
BLUE, GREEN = 'namespace="blue", fleet="ratchet"', 'namespace="green", fleet="ratchet"'


@pytest.mark.parametrize(
    "command", ["check rules rules.yml", "check config prometheus.yml", f"test rules {' '.join(RULES_TESTS)}"]
)
def test_promtool_finds_nothing_wrong(command: str) -> None:
    run = run_promtool(*command.split(), folder=FOLDER)

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_rules_test_bites(tmp_path: Path) -> None:
    rules = (FOLDER / "rules.yml").read_text()
    weakened = rules.replace('delta(ratchet_queue_messages{queue="dead-letters"}[15m]) > 0', "vector(1) > 2")
    assert weakened != rules
    (tmp_path / "rules.yml").write_text(weakened)
    document = yaml.safe_load((FOLDER / "rules_test.yml").read_text())
    document["tests"] = [test for test in document["tests"] if "RatchetDeadLettersGrow" in fired_in(test)]
    assert document["tests"]
    (tmp_path / "rules_test.yml").write_text(yaml.safe_dump(document))

    run = run_promtool("test", "rules", "rules_test.yml", folder=tmp_path)

    assert run.returncode != 0
    assert "RatchetDeadLettersGrow" in run.stdout + run.stderr


def read_rule_tests() -> list[dict[str, Any]]:
    return [test for name in RULES_TESTS for test in yaml.safe_load((FOLDER / name).read_text())["tests"]]


def fired_in(test: dict[str, Any]) -> set[str]:
    """The alerts that are seen to fire there."""
    return {case["alertname"] for case in test["alert_rule_test"] if case["exp_alerts"]}


def test_every_alert_is_seen_to_fire_and_to_be_silent() -> None:
    cases = [case for test in read_rule_tests() for case in test["alert_rule_test"]]
    expected = [(case["alertname"], bool(case["exp_alerts"])) for case in cases]

    assert {alert for alert, fires in expected if fires} == set(RULES)
    assert {alert for alert, fires in expected if not fires} == set(RULES)


@pytest.mark.parametrize("alert", RULES)
def test_every_metric_and_label_of_a_rule_is_exported(alert: str) -> None:
    asked = named(RULES[alert]["expr"])
    there = exported() | RECORDED

    known: set[str] = set(TARGET_LABELS)
    for metric, labels in asked.metrics:
        assert metric in there, f"{alert}: nobody exports {metric}"
        assert labels <= there[metric] | TARGET_LABELS, f"{alert}: {metric} has no label {sorted(labels)}"
        known |= there[metric]
    assert asked.metrics
    assert asked.grouping <= known


@pytest.mark.parametrize("alert", RULES)
def test_every_alert_has_its_section_in_the_runbook(alert: str) -> None:
    address, _, anchor = RULES[alert]["annotations"]["runbook_url"].partition("#")

    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)

    assert address == "{{ $externalLabels.runbooks }}"
    assert alert in headings
    assert anchor == alert.lower()


def test_every_section_of_an_alert_belongs_to_a_rule() -> None:
    headings = re.findall(r"^#+ (Ratchet[A-Z]\w+)$", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)

    assert sorted(headings) == sorted(RULES)


def healthy() -> list[dict[str, str]]:
    """The series of the healthy fleet of rules_test_hours.yml: eight hours, a value a minute."""
    tests = {test["name"]: test for test in read_rule_tests()}
    series: list[dict[str, str]] = tests["a healthy fleet"]["input_series"]
    return series


def of(fleet: str, series: list[dict[str, str]], **values: str) -> list[dict[str, str]]:
    """These series as another fleet's; `values` replaces those of a metric by its name."""
    return [
        {
            "series": one["series"].replace(FLEET, fleet),
            "values": values.get(one["series"].partition("{")[0], one["values"]),
        }
        for one in series
    ]


def alerts(
    folder: Path,
    series: list[dict[str, str]],
    *at: str,
    severities: str = "critical|warning|info",
    every: str = "5m",
) -> dict[str, list[str]]:
    """Which alerts fire at these times, each with its fleet: as promtool finds them, which is told that none does.

    The rules are evaluated so often: `every` fifth minute costs a fifth.
    """
    query = f'sort(group by (alertname, namespace, fleet) (ALERTS{{alertstate="firing", severity=~"{severities}"}}))'
    cases = [{"expr": query, "eval_time": time, "exp_samples": []} for time in at]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    document = {"rule_files": [str(FOLDER / "rules.yml")], "evaluation_interval": every, "tests": [test]}
    (folder / "test.yml").write_text(yaml.safe_dump(document))

    run = run_promtool("test", "rules", "test.yml", folder=folder)

    said = run.stdout + run.stderr
    found = {duration(time): sorted(LABELS.findall(labels)) for time, labels in FIRING.findall(said)}
    assert run.returncode == 0 or found, said
    return {time: found.get(duration(time), []) for time in at}


def duration(text: str) -> int:
    """Minutes, of `1470m` as of the `1d30m` that promtool makes of it."""
    return sum(int(number) * MINUTES[unit] for number, unit in re.findall(r"(\d+)([dhm])", text))


MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
FIRING = re.compile(r"time: (\w+),\s+exp: nil\s+got: (.*)")
SOON = "2h"
"""Late enough for every alert that one of these faults raises."""
LABELS = re.compile(r'\{alertname="\w+"[^}]*\}')


def test_healthy_fleets_in_one_prometheus_raise_nothing(tmp_path: Path) -> None:
    """Two of one name in two namespaces, and two of two names in one namespace."""
    fleets = (BLUE, GREEN, 'namespace="apps", fleet="one"', 'namespace="apps", fleet="two"')

    assert alerts(tmp_path, [one for fleet in fleets for one in of(fleet, healthy())], "8h") == {"8h": []}


def test_of_two_fleets_the_one_without_a_leader_is_named(tmp_path: Path) -> None:
    both = of(BLUE, healthy(), ratchet_orchestrator_active="0x500") + of(GREEN, healthy())

    assert alerts(tmp_path, both, SOON)[SOON] == ['{alertname="RatchetNoLeader", fleet="ratchet", namespace="blue"}']


def test_of_two_fleets_the_one_whose_orchestrators_are_gone_is_named(tmp_path: Path) -> None:
    gone = [one for one in healthy() if not one["series"].startswith("ratchet_orchestrator_active")]

    found = alerts(tmp_path, of(BLUE, gone) + of(GREEN, healthy()), SOON)[SOON]

    assert found == ['{alertname="RatchetNoLeader", fleet="ratchet", namespace="blue"}']


def test_of_two_fleets_the_one_with_two_leaders_is_named(tmp_path: Path) -> None:
    both = of(BLUE, healthy()) + of(GREEN, healthy(), ratchet_orchestrator_active="1x500")

    assert alerts(tmp_path, both, SOON)[SOON] == ['{alertname="RatchetTwoLeaders", fleet="ratchet", namespace="green"}']


def test_of_two_fleets_the_one_that_answers_nothing_is_named(tmp_path: Path) -> None:
    both = of(BLUE, healthy()) + of(GREEN, healthy(), ratchet_tasks_closed_total="7x500")

    found = alerts(tmp_path, both, SOON)[SOON]

    assert '{alertname="RatchetNothingAnswered", fleet="ratchet", namespace="green"}' in found
    assert not [alert for alert in found if "blue" in alert]


@pytest.mark.parametrize(
    "loading",
    [
        {'up{fleet="ratchet", job="vllm", instance="v:8000"}': "0x20 1x40"},  # Compose: agents are started after it
        {
            'up{fleet="ratchet", job="agent-small", instance="a:8710", namespace="blue"}': "0x20 1x40"
        },  # a sidecar, before its agent
        {
            'up{fleet="ratchet", job="agent", instance="a:8710"}': "1x60",  # a model in the agent itself
            'ratchet_ready{fleet="ratchet", job="agent", instance="a:8710"}': "0x20 1x40",
        },
    ],
    ids=["compose", "sidecar", "in the agent"],
)
def test_a_model_that_loads_for_20_minutes_raises_nothing_critical(tmp_path: Path, loading: dict[str, str]) -> None:
    labels = 'fleet="ratchet", namespace="blue"' if "namespace" in next(iter(loading)) else 'fleet="ratchet"'
    waiting = {
        f'ratchet_orchestrator_active{{{labels}, instance="o"}}': "1x60",
        f'ratchet_broker_connected{{{labels}, job="orchestrator", instance="o"}}': "1x60",
        f'ratchet_queue_messages{{{labels}, queue="work.small", instance="o"}}': "0+60x20 1200-60x20 0x20",
        f'ratchet_queue_consumers{{{labels}, queue="work.small", instance="o"}}': "0x20 1x40",
        f'ratchet_tasks_admitted_total{{{labels}, agent="small"}}': "0+60x60",
        f'ratchet_tasks_closed_total{{{labels}, agent="small", status="ok"}}': "0x20 0+90x40",
        f'ratchet_oldest_open_task_seconds{{{labels}, instance="o"}}': "0+60x20 0x40",
    }

    series = [{"series": name, "values": values} for name, values in (waiting | loading).items()]

    times = ("4m", "6m", "12m", "16m", "19m", "21m", "30m")
    assert not any(alerts(tmp_path, series, *times, severities="critical", every="1m").values())


def test_what_is_down_wakes_somebody_until_it_is_back(tmp_path: Path) -> None:
    lost = "1x20 0x1980 1x20"  # 33 hours
    series = {
        'up{fleet="ratchet", job="agent", instance="a:8710"}': "1x3 0x1997 1x20",
        'up{fleet="ratchet", job="runner", instance="r:8770"}': "1x2020",
        'ratchet_ready{fleet="ratchet", job="runner", instance="r:8770"}': lost,
        'ratchet_runner_rollouts_running{fleet="ratchet", job="runner", instance="r:8770"}': "1x20 stale _x1979 1x20",
        'ratchet_orchestrator_active{fleet="ratchet", instance="o"}': "1x2020",
        'ratchet_queue_messages{fleet="ratchet", queue="work.small", instance="o"}': "0x20 5x1980 0x20",
        'ratchet_queue_consumers{fleet="ratchet", queue="work.small", instance="o"}': lost,
    }
    given = [{"series": name, "values": values} for name, values in series.items()]
    woken = ("AgentLost", "NoRunner", "NotReady", "QueueUnconsumed", "ServiceDown")
    expected = [f'{{alertname="Ratchet{alert}", fleet="ratchet"}}' for alert in woken]

    found = alerts(tmp_path, given, "30m", "23h", "1470m", "1500m", "32h", "2015m", severities="critical")

    assert found == dict.fromkeys(found, expected) | {"2015m": []}


def test_only_three_severities_are_known() -> None:
    assert {rule["labels"]["severity"] for rule in RULES.values()} == {"critical", "warning", "info"}
