"""The report that `ratchet try` prints at its end, read in a terminal of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from schemas.messages.task import Task
from services.cli.eval.task_set import SetTask
from services.cli.fleet.options import FleetOptions
from services.cli.trying.trial import Grading, TrialReport, plan_trial, render_trial

METRICS = {
    "held_out_texts": 9,
    "held_out_before": 0.274,
    "held_out_best": 0.0054,
    "held_out_best_step": 48,
    "held_out_ended": 64,
}
TRAINED = {"status": "trained", "reason": None, "counts": {}, "metrics": METRICS}
REFUSED = {"status": "refused", "reason": "too few groups", "counts": {}, "metrics": {}}


def printed(outcome: Mapping[str, Any], after: float | None) -> list[str]:
    tasks = [SetTask(Task(task_id=f"t{n}", input=f"{n}", reference="{}"), None, f"{n:064}") for n in range(40)]
    grading = Grading("verifier:json", 40, 40, frozenset(one.sha256 for one in tasks), {}, comparable=True)
    trial = plan_trial(tasks, grading, None, seed=1)
    measured = [
        None if worth is None else {one.sha256: [worth, worth / (1 + n % 2)] for n, one in enumerate(trial.held_out)}
        for worth in (0.0, after)
    ]
    assert measured[0] is not None
    options = FleetOptions(agents=("small",), model="smollm2", scorer="verifier:json", trainer=False)
    seconds = {"measuring": 26.4, "training": 704.2}
    report = TrialReport(
        Path("tasks.jsonl"), options, 108, grading, trial, 2, measured[0], measured[1], outcome, seconds, Path("env")
    )
    console = Console(width=80, file=io.StringIO(), highlight=False, soft_wrap=True)
    console.print(render_trial(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_training_that_helped_is_told_row_by_row_with_its_time_and_its_looks() -> None:
    lines = printed(TRAINED, 1.0)

    exact = next(line for line in lines if line.startswith("exactly right"))
    assert exact.split()[2] == "0.000"
    assert exact.endswith("]") and exact.count("[") == 3
    assert "Time: 731 s (measuring 26 s, training 704 s)" in lines
    assert any(
        "9 texts that it did not teach were looked at: 0.274 before, 0.005 at the best step, 48 of 64" in one
        for one in lines
    )
    assert any("type before: . env" in one for one in lines)


def test_a_training_that_made_nothing_gives_its_reason_and_no_version_to_begin_with() -> None:
    lines = printed(REFUSED, None)

    assert "Nothing was learned: too few groups" in lines
    assert any(one.startswith("More tasks help most") for one in lines)
    assert not any("type before" in one or "did not teach" in one for one in lines)


def test_no_difference_is_no_gain() -> None:
    lines = printed(TRAINED, 0.0)

    assert "No difference is proved: the interval reaches 0." in lines
