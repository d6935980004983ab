"""An application's score takes the place of the scorer's, moves the advantages, and is accounted for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from services.trainer.algorithms.advantages import group_advantages
from services.trainer.data.feedback_scores import read_feedback
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan
from services.trainer.data.selection import Selection, select
from tests.services.trainer.making_logs import AT, feedback, give_feedback, group, write_log

POLICY = DataPolicy(agent_id="small", versions={"v1.0.0": None})


def selected(logs: Path, until: int | None = None) -> Selection:
    scores = read_feedback(logs, "small", until)
    return select(JournalScan(logs, POLICY, scores).read(0, None), POLICY)


def test_feedback_that_contradicts_the_scorer_turns_the_advantages_round(tmp_path: Path) -> None:
    logs = write_log(tmp_path, group("t1", (0.0, 0.0, 1.0)) + group("t2", (0.0, 1.0)))
    before = group_advantages(selected(logs).groups[0].scores, "group")

    give_feedback(logs, [feedback("t1", 0, 1.0), feedback("t1", 2, 0.0)])

    found = selected(logs)
    after = group_advantages(found.groups[0].scores, "group")
    assert before == pytest.approx([-0.577, -0.577, 1.155], abs=1e-3)
    assert after == pytest.approx([1.155, -0.577, -0.577], abs=1e-3)
    assert list(found.groups[1].scores) == [0.0, 1.0]
    assert found.counts == {"lines": 5, "groups": 2, "samples": 5, "feedback": 2}


@pytest.mark.parametrize(
    ("lines", "scores"),
    [
        ([("t1", 0, 0.25), ("t1", 0, 0.75)], [0.75, 1.0]),
        ([("t1", 7, 1.0), ("t9", 0, 1.0)], [0.0, 1.0]),
    ],
    ids=["the last one wins", "of samples that are not there"],
)
def test_which_feedback_counts(tmp_path: Path, lines: list[tuple[str, int, float]], scores: list[float]) -> None:
    logs = write_log(tmp_path, group("t1", (0.0, 1.0)))

    give_feedback(logs, [feedback(*one) for one in lines])

    assert list(selected(logs).groups[0].scores) == scores


def test_a_correction_teaches_in_the_next_training_though_the_one_before_has_read_its_task(tmp_path: Path) -> None:
    hour = timedelta(hours=1)
    before = group("old", (0.0, 1.0), input="a", timestamp=AT) + group("t1", (0.0, 1.0), timestamp=AT + 2 * hour)
    since = len(b"".join(before))
    logs = write_log(tmp_path, before + group("t2", (0.0, 1.0), timestamp=AT + 9 * hour))
    given = [feedback("old", 0, 0.0, correction="learned", timestamp=AT + hour)]
    given += [feedback(task, 0, 0.0, correction="better", timestamp=AT + 3 * hour) for task in ("t1", "t3")]
    give_feedback(logs, given)

    policy = replace(POLICY, sources=frozenset({"correction"}))
    found = JournalScan(logs, policy, read_feedback(logs, "small", None)).read(since, None)

    assert [place.text for place in found.demonstrations.places] == ["better"]
    assert (found.lines, len(found.groups)) == (2, 1)
    window, late, _ = found.ranges
    assert window.start == since and late.start == len(b"".join(before[:2])) and late.end < since
    assert not JournalScan(logs, POLICY, read_feedback(logs, "small", None)).read(since, None).demonstrations.places


def test_feedback_makes_a_group_teach_and_one_with_nothing_to_learn_drop_out(tmp_path: Path) -> None:
    logs = write_log(tmp_path, group("even", (1.0, 1.0)) + group("unscored", (None, 1.0)) + group("agreed", (0.0, 1.0)))

    give_feedback(logs, [feedback("even", 1, 0.0), feedback("unscored", 0, 0.5), feedback("agreed", 0, 1.0)])

    found = selected(logs)
    assert [list(kept.scores) for kept in found.groups] == [[1.0, 0.0], [0.5, 1.0]]
    assert found.counts["groups.zero_spread"] == 1


def test_that_an_application_disagrees_is_no_noise_of_the_scorer(tmp_path: Path) -> None:
    logs = write_log(tmp_path, group("t1", (0.5, 0.5), response="the same") + group("t2", (0.0, 1.0)))

    give_feedback(logs, [feedback("t1", 0, 1.0)])

    assert selected(logs).noise == 0.0


def test_another_agents_feedback_and_broken_lines_change_nothing(tmp_path: Path) -> None:
    logs = write_log(tmp_path, group("t1", (0.0, 1.0)))

    give_feedback(logs, [feedback("t1", 0, 1.0, agent_id="coder"), b'{"task_id": 1}\n', b"{torn"])

    assert "feedback" not in selected(logs).counts


def test_the_manifest_says_which_bytes_were_read_and_reading_to_there_again_gives_the_same(tmp_path: Path) -> None:
    logs = write_log(tmp_path, group("t1", (0.0, 1.0)))
    first = feedback("t1", 0, 0.5)
    give_feedback(logs, [first])
    end = read_feedback(logs, "small", None).end

    give_feedback(logs, [feedback("t1", 0, 0.9, timestamp=AT + timedelta(hours=1))])
    found = selected(logs, until=end)

    assert end == len(first)
    assert list(found.groups[0].scores) == [0.5, 1.0]
    _, read = found.ranges
    assert (read.log, read.start, read.end) == ("feedback", 0, end)
    assert read.sha256 == hashlib.sha256(first).hexdigest()


def test_before_any_feedback_there_is_nothing_to_read(tmp_path: Path) -> None:
    found = read_feedback(tmp_path, "small", None)

    assert (found.scores, found.ranges, found.end) == ({}, (), 0)
    assert read_feedback(tmp_path, "small", found.end) == found
