"""How adapters stand, from the registry and the orchestrator's metrics, and the line that says it."""

from __future__ import annotations

import io

from rich.console import Console

from demos.adapter_status import adapter_status, e_text, experiment_line
from schemas.records.decision import RunningExperiment
from schemas.records.registry import AdapterEntry, AgentAdapters
from services.cli.narrator import Narrator
from services.cli.watch.figures import parse_series
from tests.ratchet.adapters.making_adapters import NOON

METRICS = """
ratchet_experiment_share{agent="small"} 0.25
ratchet_experiment_share{agent="other"} 0.5
ratchet_experiment_threshold{agent="small"} 50.0
ratchet_experiment_units{agent="small",arm="treatment"} 12.0
ratchet_experiment_units{agent="small",arm="control"} 80.0
ratchet_experiment_e_value{agent="small",test="gain"} 3.25
ratchet_experiment_e_value{agent="small",test="success_kept"} 1.5
ratchet_experiment_e_value{agent="small",test="harm"} 0.3
ratchet_trainings_total{agent="small",status="refused"} 1.0
ratchet_swap_seconds{agent="small"} 0.225
"""


def with_canary() -> AgentAdapters:
    running = RunningExperiment(
        experiment_id="small-v1.0.1-9", treatment="v1.0.1", control="v1.0.0", share=0.05, started_at=NOON
    )
    canary = AdapterEntry(version="v1.0.1", state="canary", folder="small/v1.0.1")  # type: ignore[arg-type]
    versions = {**AgentAdapters().versions, "v1.0.1": canary}
    return AgentAdapters(candidate="v1.0.1", experiment=running, versions=versions)


def test_the_figures_are_those_of_the_agent() -> None:
    found = adapter_status(with_canary(), parse_series([METRICS]), "small")

    assert found.experiment is not None
    assert found.experiment.share == 0.25
    assert found.experiment.units == {"treatment": 12, "control": 80}
    assert found.experiment.e_values == {"gain": 3.25, "success_kept": 1.5, "harm": 0.3}
    assert (found.trainings, found.swap_s, found.state("v1.0.1")) == ({"refused": 1}, 0.225, "canary")


def test_where_the_orchestrator_does_not_answer_only_the_registry_is_known() -> None:
    found = adapter_status(with_canary(), {}, "small")

    assert (found.experiment, found.trainings, found.swap_s) == (None, {}, None)
    assert found.state("v1.0.1") == "canary"
    assert found.state("v9.0.0") is None


def test_the_line_of_an_experiment_and_of_none() -> None:
    line, about = experiment_line(adapter_status(with_canary(), parse_series([METRICS]), "small"))

    assert line == (
        "canary: v1.0.1 against v1.0.0, share 25%, 12 + 80 tasks, "
        "evidence (50 decides): a gain 3.2, success kept 1.5, harm 0.3"
    )
    assert about == ("small-v1.0.1-9", 0.25)
    assert experiment_line(adapter_status(AgentAdapters(), {}, "small")) == ("the primary is v1.0.0", "v1.0.0")


def test_large_e_values_are_short() -> None:
    assert (e_text(9999.94), e_text(95471.0)) == ("9999.9", "1e+05")


def test_without_a_terminal_a_line_is_printed_only_when_something_changed() -> None:
    printed = io.StringIO()
    narrator = Narrator(Console(file=printed))

    with narrator.waiting("waiting"):
        for units, share in ((1, 5), (2, 5), (3, 25)):
            narrator.show(f"{units} units at {share} %", share)

    assert [line.strip() for line in printed.getvalue().splitlines()] == [
        "waiting …",
        "1 units at 5 %",
        "3 units at 25 %",
    ]


def test_on_a_terminal_what_is_waited_for_stands_in_one_place() -> None:
    printed = io.StringIO()
    narrator = Narrator(Console(file=printed, force_terminal=True, width=60))

    with narrator.waiting("waiting"):
        narrator.show("halfway", 1)
    narrator.say("done")

    assert "waiting …" not in printed.getvalue()
    assert "done" in printed.getvalue()
