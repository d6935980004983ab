"""Means, intervals and the course of the scores, from a log of any length in the same memory."""

from __future__ import annotations

import json
import statistics
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.served import Mean
from services.cli.report.score_stats import MOST_PERIODS, LogScores, Timeline, read_scores


def line(
    number: int, sample: int | None, score: float | None, version: str = "v1.0.0", **fields: Any
) -> dict[str, Any]:
    at = f"2026-01-05T12:{number // 60 % 60:02}:{number % 60:02}Z"
    arm = {"experiment_id": fields.pop("experiment_id", None)}
    row = {"task_id": f"t{number}", "agent_id": "small", "adapter_version": version, "timestamp": at, "arm": arm}
    return row | {"sample": sample, "score": score} | fields


def scores_of(folder: Path, *rows: dict[str, Any]) -> LogScores:
    sizes = Counter(row["task_id"] for row in rows)
    lines = (json.dumps(row | {"group_size": sizes[row["task_id"]]}) + "\n" for row in rows)
    (folder / "agent_interactions.jsonl").write_text("".join(lines))
    return read_scores(folder)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_a_running_mean_and_its_error_are_those_of_the_whole_list(values: list[float]) -> None:
    mean = Mean()
    for value in values:
        mean.add(value)

    assert mean.mean == pytest.approx(statistics.fmean(values))
    assert mean.error == pytest.approx(statistics.stdev(values) / len(values) ** 0.5, abs=1e-9)


def test_a_task_counts_once_with_the_mean_of_its_group(tmp_path: Path) -> None:
    rows = (line(1, 0, 0.2), line(1, 1, 0.4), line(2, 0, 1.0), line(2, 1, None), line(3, None, None))

    small = scores_of(tmp_path, *rows).agents["small"]

    assert (small.live["v1.0.0"].count, small.live["v1.0.0"].mean) == (2, pytest.approx(0.65))
    assert (small.tasks, small.failed) == (3, 1)


def test_what_users_were_served_is_beside_a_single_answer_and_how_many_differ(tmp_path: Path) -> None:
    rows = (
        *(
            line(1, sample, score, response=text)
            for sample, (score, text) in enumerate([(0.2, "a"), (0.8, "b"), (0.2, "a")])
        ),
        *(line(2, sample, score, response=text) for sample, (score, text) in enumerate([(None, "c"), (0.4, "d")])),
        line(3, 0, 1.0, experiment_id="validation:small-v1.0.1-3"),
    )

    quality = scores_of(tmp_path, *rows).agents["small"].qualities()["v1.0.0"]

    assert quality["served"]["mean"] == pytest.approx(0.6)
    assert quality["single"]["mean"] == pytest.approx(0.4)
    assert quality["distinct"] == {"tasks": 2, "mean": 2.0, "half_width": 0.0}


def test_the_golden_set_and_the_anchors_are_no_live_traffic(tmp_path: Path) -> None:
    golden = line(1, 0, 0.9, "v1.0.1", experiment_id="validation:small-v1.0.1-3")
    anchors = [
        line(n, 0, score, experiment_id=f"validation:small-anchors-{run}", task_id=f"anchor/x/{n}/ab")
        for n, (run, score) in enumerate([(1, 0.2), (1, 0.4), (2, 0.8)])
    ]

    small = scores_of(tmp_path, golden, *anchors, line(9, 0, 0.1)).agents["small"]

    assert {version: mean.mean for version, mean in small.live.items()} == {"v1.0.0": 0.1}
    assert {version: mean.mean for version, mean in small.held_out.items()} == {"v1.0.1": 0.9}
    assert [mean.mean for _, mean in small.anchors] == [pytest.approx(0.3), 0.8]
    assert small.tasks == 1


def test_bad_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    (tmp_path / "agent_interactions.jsonl").write_text(
        '{"task_id": 7}\nnot json\n' + json.dumps(line(1, 0, 0.5)) + "\n"
    )

    scores = read_scores(tmp_path)

    assert (scores.lines, scores.bad_lines) == (1, 2)


def test_no_log_is_no_error(tmp_path: Path) -> None:
    assert read_scores(tmp_path / "nowhere") == LogScores()


@given(st.lists(st.none() | st.floats(0, 1), max_size=1500))
def test_a_timeline_forgets_no_task_and_stays_short(values: list[float | None]) -> None:
    timeline = Timeline()
    for number, value in enumerate(values):
        timeline.add("2026-01-05T12:00:00Z", f"v1.0.{number % 3}", value)

    assert len(timeline.periods) <= MOST_PERIODS
    assert sum(period.tasks for period in timeline.periods) == len(values)
    assert sum(sum(period.shares.values()) for period in timeline.periods) == len(values)
    known = [value for value in values if value is not None]
    assert sum(period.total for period in timeline.periods) == pytest.approx(sum(known))


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    def peak(tasks: int) -> int:
        rows = (json.dumps(line(n, 0, (n % 100) / 100, response="x" * 400)) + "\n" for n in range(tasks))
        (tmp_path / "agent_interactions.jsonl").write_text("".join(rows))
        tracemalloc.start()
        read_scores(tmp_path)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(500)

    assert peak(12_000) < 1.5 * peak(3_000)
