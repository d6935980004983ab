"""An evaluation: its set is kept from training, leaks are found, answers are paired by task and drawn."""

from __future__ import annotations

import json
import xml.etree.ElementTree as Xml
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ratchet.adapters.evaluations import (
    evaluations_of,
    held_out_inputs,
    input_sha256,
    inputs_written_at,
    logged_input_sha256,
    read_inputs,
    register_set,
    registered_sets,
    write_evaluation,
    write_inputs,
)
from ratchet.service.errors import AdapterError, StorageUnavailable, TimedOut
from schemas.messages.result import Result
from schemas.messages.task import ChatMessage, Task
from schemas.messages.work import Arm
from schemas.records.adapter_card import DataRange, DataWindow
from schemas.records.evaluation import EvaluatedVersion, Evaluation, Interval
from schemas.records.registry import AdapterEntry, AgentAdapters
from services.cli.eval.asking import Asking, Contestant, answers
from services.cli.eval.results import results, worth
from services.cli.eval.task_set import Window, find_leaks, read_set, since_when, windows_of
from services.cli.eval.view import drawn_interval, picture, render_evaluation
from services.cli.terminal import UsageError
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.disks import MayNotMount, run_where_mounting_is_allowed, unreadable
from tests.ratchet.adapters.making_adapters import NOON, published
from tests.services.trainer.making_logs import group, line, write_log

SET = '{"input": "sort: ba", "reference": "ab", "family": "short"}\n"sort:  ba"\n\n{"input": "sort: dcba"}\n'


def asked_set(folder: Path) -> Path:
    path = folder / "held_out.jsonl"
    path.write_text(SET)
    return path


def test_an_input_is_the_same_as_text_as_chat_and_with_other_white_space() -> None:
    text = input_sha256("sort: ba")

    assert input_sha256((ChatMessage(role="user", content=" sort:\nba "),)) == text
    assert logged_input_sha256(b'"sort: ba"') == text
    assert logged_input_sha256(b'[{"role": "user", "content": "sort: ba"}]') == text
    assert input_sha256((ChatMessage(role="system", content="sort: ba"),)) != text
    assert logged_input_sha256(b"[3]") is None and logged_input_sha256(b"{") is None


def test_a_set_has_each_input_once_with_its_family(tmp_path: Path) -> None:
    read = read_set(asked_set(tmp_path))

    assert [(one.task.input, one.family) for one in read.tasks] == [("sort: ba", "short"), ("sort: dcba", None)]
    assert (read.twice, read.record.tasks) == (1, 2)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UsageError, match="holds no task"):
        read_set(tmp_path / "empty.jsonl")


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "separators.jsonl"
    path.write_text('{"input": "one\u2028task\u0085"}\n', encoding="utf-8")

    assert [one.task.input for one in read_set(path).tasks] == ["one\u2028task\u0085"]


def test_a_registered_set_keeps_its_first_date_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    read = read_set(asked_set(tmp_path))

    register_set(tmp_path, "small", read.registration(NOON))
    again = register_set(tmp_path, "small", read.registration(NOON + timedelta(days=1)))

    assert again.registered_at == NOON
    assert held_out_inputs(tmp_path, "small") == {one.sha256 for one in read.tasks}
    assert held_out_inputs(tmp_path, "coder") == frozenset()
    next((tmp_path / "small/evaluations/sets").iterdir()).write_text("{")
    with pytest.raises(AdapterError, match="restore it"):
        registered_sets(tmp_path, "small")
    assert register_set(tmp_path, "small", read.registration(NOON)).registered_at == NOON


def test_a_sick_disk_is_no_fault_of_a_set_and_changes_no_date(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    read, found = read_set(asked_set(tmp_path)), evaluation()
    register_set(tmp_path, "small", read.registration(NOON))
    record = next((tmp_path / "small/evaluations/sets").iterdir())
    written = write_evaluation(tmp_path, found, picture(found))
    write_inputs(inputs := tmp_path / "inputs.json", ["a"], NOON)
    try:
        with unreadable(record):
            for reading in (registered_sets, held_out_inputs):
                with pytest.raises(StorageUnavailable, match="Input/output error"):
                    reading(tmp_path, "small")
            with pytest.raises(StorageUnavailable, match="Input/output error"):
                register_set(tmp_path, "small", read.registration(NOON + timedelta(days=1)))
        with unreadable(inputs), pytest.raises(StorageUnavailable, match="Input/output error"):
            read_inputs(inputs)
        with unreadable(written), pytest.raises(StorageUnavailable, match="Input/output error"):
            evaluations_of(tmp_path, "small", "v1.0.1")
    except MayNotMount:
        run_where_mounting_is_allowed(request.node.nodeid)
        return

    (kept,) = registered_sets(tmp_path, "small")
    assert kept.registered_at == NOON


def test_what_a_version_was_trained_on_is_found_in_its_windows_and_its_parents(tmp_path: Path) -> None:
    # given a log with the input of the set in three places: in one window, in none, and asked by an evaluation itself
    lines = [
        *group("t1", (0.0, 1.0), input="sort:  ba"),
        *group("t2", (0.0, 1.0), input="sort: dcba"),
        *group("t3", (0.0, 1.0), input="sort: zy", arm=Arm(sequence=2, experiment_id="validation:small-evaluation-x")),
    ]
    logs = write_log(tmp_path / "logs", lines)
    end = sum(map(len, lines[:2]))
    read = DataRange(log="agent_interactions", start=0, end=end, sha256="0" * 64)
    first = published(tmp_path, created=NOON, data=DataWindow(ranges=(read,)), metrics={"seconds": 60.0})
    second = published(tmp_path, created=NOON + timedelta(hours=1), parent=first.name, seed=1)
    adapters = AgentAdapters(
        versions={
            folder.name: AdapterEntry(
                version=folder.name, state="superseded", sha256="0" * 64, folder=f"small/{folder.name}"
            )
            for folder in (first, second)
        }
        | {"v1.0.0": AdapterEntry(version="v1.0.0", state="stable")}
    )
    windows = {name: list(windows_of(tmp_path, adapters, "small", name)) for name in ("v1.0.0", second.name)}
    inputs = [input_sha256(text) for text in ("sort: ba", "sort: dcba", "sort: zy")]

    # when the set was registered after the training began, and before
    late = find_leaks(logs, "small", windows, dict.fromkeys(inputs, NOON))
    early = find_leaks(logs, "small", windows, dict.fromkeys(inputs, NOON - timedelta(hours=1)))

    # then what is late has leaked, and what is early was left out
    assert windows[second.name] == [Window(0, end, NOON - timedelta(seconds=60))]
    assert late[second.name].inputs == {inputs[0]}
    assert late["v1.0.0"].inputs == set()
    assert early[second.name].inputs == set()


@pytest.mark.parametrize(
    ("given", "began"),
    [
        ({"held_out_at": NOON - timedelta(days=1), "metrics": {"seconds": 60.0}}, NOON - timedelta(days=1)),
        ({"metrics": {"seconds": 60.0}}, NOON - timedelta(seconds=60)),
        ({}, datetime.min.replace(tzinfo=UTC)),
    ],
    ids=["a card that says it", "an older one", "of a foreign trainer, which leaves nothing out"],
)
def test_a_window_began_when_its_training_fixed_what_it_leaves_out(
    tmp_path: Path, given: dict[str, Any], began: datetime
) -> None:
    read = DataRange(log="agent_interactions", start=0, end=9, sha256="0" * 64)
    made = published(tmp_path, created=NOON, data=DataWindow(ranges=(read,)), **given)
    entry = AdapterEntry(version=made.name, state="trained", sha256="0" * 64, folder=f"small/{made.name}")
    adapters = AgentAdapters(versions={made.name: entry, "v1.0.0": AdapterEntry(version="v1.0.0", state="stable")})

    found = windows_of(tmp_path, adapters, "small", made.name)

    assert list(found) == [Window(0, 9, began)]


def test_inputs_that_an_older_trainer_fixed_are_read_and_have_no_date(tmp_path: Path) -> None:
    write_inputs(tmp_path / "new.json", ["b", "a"], NOON)
    (tmp_path / "old.json").write_text('["a", "b"]')

    assert read_inputs(tmp_path / "new.json") == read_inputs(tmp_path / "old.json") == {"a", "b"}
    assert inputs_written_at(tmp_path / "new.json") == NOON
    assert inputs_written_at(tmp_path / "old.json") is inputs_written_at(tmp_path / "none.json") is None


def test_an_input_is_kept_since_the_first_set_it_was_in(tmp_path: Path) -> None:
    read = read_set(asked_set(tmp_path))
    register_set(tmp_path, "small", read.registration(NOON))

    since = since_when(registered_sets(tmp_path, "small"), [*(one.sha256 for one in read.tasks), "f" * 64])

    assert [since[one.sha256] for one in read.tasks] == [NOON, NOON]
    assert since["f" * 64] > NOON


class Fleet:
    """Answers what is published, by appending to the log; not for `silent` versions; `refused` ones it refuses."""

    def __init__(self, folder: Path, silent: Sequence[str] = (), refused: Sequence[str] = ()) -> None:
        self.logs_dir = write_log(folder / "logs", [])
        self.published: list[Task] = []
        self._silent = silent
        self._refused = refused

    def submit_all(self, tasks: Iterable[Task]) -> int:
        new = list(tasks)
        self.published += new
        for task in new:
            if task.adapter_version not in (*self._silent, *self._refused):
                about = {"adapter_version": task.adapter_version, "input": task.input}
                write_log(self.logs_dir, group(task.task_id, (0.25, 0.75), **about))
        return len(new)

    def listen(self, seconds: float) -> list[Result]:
        refused = [task for task in self.published if task.adapter_version in self._refused]
        return [Result(task_id=task.task_id, status="failed", reason="not offered") for task in refused]


def asked_of(folder: Path) -> dict[str, Callable[[], Task]]:
    asking = Asking("set-1", "small", 2, 5.0)
    return {
        f"evaluation/set-1/{version}/{n}": partial(asking.task, one, Contestant(version), n)
        for n, one in enumerate(read_set(asked_set(folder)).tasks)
        for version in ("v1.0.0", "v1.0.1")
    }


def unexpected(result: Result) -> None:
    raise AssertionError(f"refused: {result}")


def test_every_version_is_asked_every_task_and_the_log_has_the_answers(tmp_path: Path) -> None:
    fleet, asked = Fleet(tmp_path), asked_of(tmp_path)

    found = answers(fleet, fleet.logs_dir, asked, 5.0, lambda: None, unexpected)

    assert found.keys() == asked.keys()
    assert [row.score for row in found["evaluation/set-1/v1.0.1/1"]] == [0.25, 0.75]
    assert {(task.evaluation, task.samples, task.deadline is not None) for task in fleet.published} == {
        ("set-1", 2, True)
    }


def test_a_task_that_the_fleet_refuses_is_not_waited_for(tmp_path: Path) -> None:
    fleet, asked, refused = Fleet(tmp_path, refused=("v1.0.1",)), asked_of(tmp_path), list[Result]()

    found = answers(fleet, fleet.logs_dir, asked, 5.0, lambda: None, refused.append)

    assert found.keys() == asked.keys()
    assert {task_id for task_id, rows in found.items() if not rows} == {one.task_id for one in refused}
    assert {(one.task_id.split("/")[2], one.reason) for one in refused} == {("v1.0.1", "not offered")}


def test_an_answer_to_a_task_that_was_published_twice_is_no_refusal(tmp_path: Path) -> None:
    class Repeating(Fleet):
        """Sends the Result of each task, as of one that it got twice; its lines are written after a look at the log."""

        def listen(self, seconds: float) -> list[Result]:
            for task in self.published:
                write_log(self.logs_dir, group(task.task_id, (0.25, 0.75), adapter_version=task.adapter_version))
            told = [Result(task_id=task.task_id, agent_id="small", response="x") for task in self.published]
            self.published.clear()
            return told

    fleet, asked = Repeating(tmp_path, silent=("v1.0.0", "v1.0.1")), asked_of(tmp_path)

    found = answers(fleet, fleet.logs_dir, asked, 30.0, lambda: None, unexpected)

    assert {len(rows) for rows in found.values()} == {2}


def test_a_fleet_that_says_nothing_is_not_waited_for_without_end(tmp_path: Path) -> None:
    fleet, seconds = Fleet(tmp_path, silent=("v1.0.0", "v1.0.1")), iter(range(100))

    with pytest.raises(TimedOut, match="4 are open"):
        answers(fleet, fleet.logs_dir, asked_of(tmp_path), 5.0, lambda: None, unexpected, seconds=lambda: next(seconds))


@pytest.mark.parametrize(
    ("score", "status", "is_worth"),
    [(0.5, "ok", 0.5), (None, "unscorable", 0.0), (None, "infra_fail", None), (None, "timeout", None)],
)
def test_what_can_t_be_scored_is_worth_nothing_and_what_was_not_is_left_out(
    score: float | None, status: str, is_worth: float | None
) -> None:
    assert worth(score, status) == is_worth


def evaluation() -> Evaluation:
    """Two families of ten; the second version gains in one, singly by 0.5; the best of two was right before."""
    inputs = {f"{number:064x}": "even" if number % 2 == 0 else "odd" for number in range(20)}
    before = {one: [(0.9, 1.0), (0.1, 0.0)] for one in inputs}
    after = {one: [(0.9, 1.0), (0.8, 1.0 if family == "odd" else 0.0)] for one, family in inputs.items()}
    return Evaluation(
        name="held_out-1",
        agent_id="small",
        at=datetime.now(UTC),
        set={"name": "held_out.jsonl", "sha256": "0" * 64, "tasks": 21},
        scorer="verifier:exact 1",
        versions=(EvaluatedVersion(version="v1.0.0", leaked=1), EvaluatedVersion(version="v1.0.1", unanswered=1)),
        results=tuple(results({Contestant("v1.0.0"): before, Contestant("v1.0.1"): after}, inputs)),
    )


def test_differences_are_paired_by_task_by_family_and_for_one_answer_and_the_best() -> None:
    (version,) = evaluation().results
    by_family = {one.family: one for one in version.results}

    assert version.version == "v1.0.1"
    assert by_family.keys() == {None, "even", "odd"}
    assert by_family["odd"].single.difference == Interval(mean=0.5, low=0.5, high=0.5, tasks=10)
    assert by_family["even"].single.difference == Interval(mean=0.0, low=0.0, high=0.0, tasks=10)
    assert by_family[None].single.difference.mean == 0.25
    assert 0.1 < by_family[None].single.difference.low < 0.25
    assert (by_family[None].samples, by_family[None].best.difference.mean) == (2, 0.0)


def test_it_is_shown_as_a_table_and_a_picture_and_lies_beside_the_versions(tmp_path: Path) -> None:
    from rich.console import Console

    found = evaluation()
    screen = Console(width=140, record=True, file=(tmp_path / "screen").open("w"))

    screen.print(render_evaluation(found))
    path = write_evaluation(tmp_path, found, picture(found))

    text = screen.export_text()
    assert "v1.0.0 was trained on 1 of these tasks" in text and "v1.0.1 left 1 tasks unanswered" in text
    assert "best of 2" in text and "+0.500 [+0.500, +0.500]" in text
    assert Xml.fromstring(path.with_suffix(".svg").read_text()).tag.endswith("svg")
    assert json.loads(path.read_text())["schema_version"] == "evaluation.v1"
    assert [one.name for one in evaluations_of(tmp_path, "small", "v1.0.1")] == ["held_out-1"]
    assert evaluations_of(tmp_path, "small", "v1.0.7") == []


def test_an_interval_is_drawn_to_scale() -> None:
    assert drawn_interval(Interval(mean=0.5, low=0.25, high=0.75, tasks=9), 1.0) == "·······│·─●──··"


def test_lines_of_the_log_without_an_input_leak_nothing(tmp_path: Path) -> None:
    logs = write_log(tmp_path / "logs", [b"{broken\n", line("t1", 0, input="sort: ba", agent_id="coder")])
    windows = {"v1.0.1": [Window(0, 10_000, NOON)]}

    found = find_leaks(logs, "small", windows, {input_sha256("sort: ba"): NOON + timedelta(1)})

    assert found["v1.0.1"].inputs == set()


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [([], "name two with --version"), (["--version", "v1.0.7"], "v1.0.7: not loaded by the fleet")],
)
def test_what_can_not_be_evaluated_is_said_and_registers_nothing(
    tmp_path: Path, versions: list[str], sentence: str
) -> None:
    asked_set(tmp_path)

    refused = ForkedRatchet(tmp_path)("eval", "--set", "held_out.jsonl", *versions)

    assert refused.code == 2
    assert sentence in " ".join(refused.err.split())
    assert not list(tmp_path.glob("adapters/*/evaluations"))
