"""`ratchet experiment` over the logs and the ledger of a whole loop, and over nothing at all."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ratchet.adapters.decisions import DecisionLedger
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.records import ExperimentRecord, choose_record, experiments
from ratchet.experiments.view import view_of
from ratchet.service.errors import NotFound
from schemas.records.decision import Conclude, Promote, RollBack, StartExperiment
from services.cli.experiment.command import check
from services.cli.experiment.view import render_experiment, render_list
from services.cli.terminal import CommandError
from tests.acceptance.ratchet_command import ForkedRatchet as Ratchet
from tests.ratchet.adapters.making_decisions import decided, experiment, to_canary, to_primary
from tests.services.cli.whole_loop import WholeLoop


@pytest.fixture
def ratchet(loop: WholeLoop, tmp_path: Path) -> Ratchet:
    return Ratchet(tmp_path, loop.environment)


def records(folder: Path) -> list[ExperimentRecord]:
    return experiments(decision for decision, _ in DecisionLedger(folder / "adapters").read())


def test_every_experiment_is_listed_with_its_outcome(ratchet: Ratchet) -> None:
    listed = ratchet("experiment", "list", "--json").json

    assert [(one["treatment"], one["kind"], one["outcome"]) for one in listed] == [
        ("v1.0.1", "canary", "promoted"),
        ("v1.0.2", "canary", "rolled_back"),
        ("v1.0.3", "canary", "running"),
    ]
    assert [one["ended"] is None for one in listed] == [False, False, True]
    table = ratchet("experiment", "list").out
    assert all(one["experiment_id"] in table for one in listed)


def test_ids_are_in_one_piece_in_eighty_columns(loop: WholeLoop) -> None:
    listed = records(loop.folder)
    long = replace(listed[0], running=listed[0].running.model_copy(update={"experiment_id": f"small-{'9' * 22}"}))
    console = Console(width=80, record=True)

    console.print(render_list([*listed, long]))

    shown = console.export_text().splitlines()
    assert max(map(len, shown)) <= 80
    assert all(any(record.experiment_id in line for line in shown) for record in [*listed, long])
    assert "    v1.0.1 / v1.0.0" in [line.rstrip() for line in shown]


def test_verdicts_replayed_from_the_logs_are_identical_also_over_a_restart(loop: WholeLoop) -> None:
    ended = [record for record in records(loop.folder) if record.ended]

    checks = [check(record, loop.folder) for record in ended]

    assert [found.verdict for found in checks] == ["promote", "roll_back"]
    assert [found.difference for found in checks] == [None, None]


def test_replay_says_identical(ratchet: Ratchet, loop: WholeLoop) -> None:
    promoted = records(loop.folder)[0].experiment_id

    ran = ratchet("experiment", "replay", promoted)

    assert (ran.code, "identical" in ran.out, promoted in ran.out) == (0, True, True)
    assert ratchet("experiment", "replay", promoted, "--json").json["identical"] is True


def test_one_score_changed_in_the_log_is_found_and_the_first_field_that_differs_named(
    loop: WholeLoop, tmp_path: Path
) -> None:
    # given a log in which one score of the experiment is a billionth off
    folder = shutil.copytree(loop.folder, tmp_path / "copy")
    promoted = records(folder)[0]
    log = folder / "agent_interactions.jsonl"
    lines = log.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if f'"{promoted.experiment_id}"' in line)
    score = json.loads(lines[number])["score"]
    changed = score + 1e-9
    lines[number] = lines[number].replace(f'"score":{score!r}', f'"score":{changed!r}', 1)
    log.write_text("\n".join(lines) + "\n")

    # when it is replayed
    ran = Ratchet(tmp_path, WholeLoop(folder).environment)("experiment", "replay", promoted.experiment_id)

    # then it differs in the numbers, not in the verdict
    assert ran.code == 1
    assert "evidence." in ran.out
    assert "in the ledger, but" in ran.out


def test_a_finished_experiment_is_shown_with_its_picture_and_its_verdict(ratchet: Ratchet, loop: WholeLoop) -> None:
    harmful = records(loop.folder)[1].experiment_id

    shown = ratchet("experiment", "show", harmful).out

    assert "canary of v1.0.2 against v1.0.1" in shown
    assert "●" in shown and "▼" in shown
    assert "The candidate is proved harmful" in shown
    assert "rolled_back" in shown


def test_the_running_experiment_is_shown_if_none_is_named_with_what_is_missing(ratchet: Ratchet) -> None:
    shown = ratchet("experiment", "show", "--agent", "small")

    assert "canary of v1.0.3" in shown.out
    assert "still missing: score e-value" in shown.out
    state = ratchet("experiment", "show", "--json").json
    assert state["decision"]["verdict"] == "continue"
    assert state["history"][-1]["units"] == state["decision"]["evidence"]["units"]


@pytest.mark.parametrize("rows", [24, 30, 37, 45, 51, 70])
def test_followed_it_fits_the_terminal_to_the_last_line(loop: WholeLoop, rows: int) -> None:
    for record in records(loop.folder):
        console = Console(width=100, height=rows, file=StringIO(), record=True)

        console.print(render_experiment(view_of(record, loop.folder), width=100, rows=rows))

        shown = console.export_text().splitlines()
        assert len(shown) <= rows
        assert any("●" in line for line in shown)


def test_a_terminal_without_unicode_gets_a_picture_too(loop: WholeLoop, tmp_path: Path) -> None:
    ran = Ratchet(tmp_path, loop.environment | {"PYTHONIOENCODING": "ascii"})("experiment", "show")

    assert ran.code == 0
    assert "* estimate, . band" in ran.out
    assert ran.out.isascii()


def test_an_ended_experiment_followed_is_shown_once(ratchet: Ratchet, loop: WholeLoop) -> None:
    ended = records(loop.folder)[0].experiment_id

    ran = ratchet("experiment", "show", ended, "--follow", "--json")

    assert json.loads(ran.out)["outcome"] == "promoted"


def test_without_the_logs_the_ledgers_evidence_is_shown_and_the_trouble_said(loop: WholeLoop, tmp_path: Path) -> None:
    promoted = records(loop.folder)[0]
    assert promoted.running.parameters["positions"]

    look = view_of(promoted, tmp_path)

    assert look.trouble is not None and "no line starts at byte" in look.trouble
    assert look.history == ()
    assert look.decision is not None and look.decision == promoted.verdict


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("list",), 0, "ratchet train"),
        (("list", "--json"), 0, "[]"),
        (("show",), 2, "ratchet train"),
        (("show", "nothing"), 2, "ratchet experiment list"),
        (("replay", "nothing"), 2, "ratchet experiment list"),
    ],
)
def test_where_nothing_is_yet_it_says_what_to_type(
    tmp_path: Path, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    ran = Ratchet(tmp_path)("experiment", *arguments)

    assert ran.code == code
    assert sentence in ran.out + ran.err
    assert len((ran.out + ran.err).splitlines()) == 1


def test_a_running_experiment_has_no_verdict_to_replay(loop: WholeLoop) -> None:
    with pytest.raises(CommandError, match="still running"):
        check(records(loop.folder)[2], loop.folder)


def test_an_experiment_ended_without_evidence_of_its_own_has_no_verdict_to_compare(tmp_path: Path) -> None:
    # given a promotion without evidence in the ledger
    store = RegistryStore(tmp_path)
    decided(store, *to_primary("v1.0.1"))
    (canary,) = experiments(decision for decision, _ in store.ledger.read())

    # then there is an outcome, but nothing to compare
    assert canary.outcome == "promoted"
    with pytest.raises(CommandError, match="not by a verdict of its own"):
        check(canary, tmp_path)


def test_an_experiment_of_another_version_of_ratchet_is_shown_without_a_picture(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    decided(store, *to_primary("v1.0.1"))
    canary = experiments(decision for decision, _ in store.ledger.read())[0]

    look = view_of(canary, tmp_path)

    assert (look.plan, look.decision) == (None, None)
    assert look.trouble is not None and "another version" in look.trouble


def test_the_running_one_is_chosen_else_the_newest_of_the_agent(loop: WholeLoop) -> None:
    listed = records(loop.folder)

    assert choose_record(listed, None, None) is listed[2]
    assert choose_record(listed[:2], None, "small") is listed[1]
    with pytest.raises(NotFound, match="agent other has no experiment yet"):
        choose_record(listed, None, "other")


def test_without_an_id_the_one_that_promoted_is_shown_before_a_watch(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    kinds = []
    for move in (
        *to_primary("v1.0.1"),
        StartExperiment(experiment=experiment("v1.0.1", kind="watch")),
        *to_canary("v1.0.2", "v1.0.1"),
        Conclude(experiment_id="canary-v1.0.2", verdict="aborted"),
    ):
        decided(store, move)
        if isinstance(move, StartExperiment | Promote | Conclude):
            kinds.append(choose_record(records_of(store), None, None).experiment_id)

    assert kinds == ["canary-v1.0.1"] * 3 + ["canary-v1.0.2"] * 2

    # and one that found harm is shown as what ended last
    decided(store, RollBack(version="v1.0.1"))
    assert choose_record(records_of(store), None, None).experiment_id == "watch-v1.0.1"


def records_of(store: RegistryStore) -> list[ExperimentRecord]:
    return experiments(decision for decision, _ in store.ledger.read())
