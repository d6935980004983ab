"""`ratchet report`: one page, whole, offline, of a real loop, of nothing, and of things gone wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ratchet.adapters.limits import LARGEST_REPORT
from ratchet.adapters.manifest import TRAINING_REPORT
from ratchet.runs.progress import training_report
from services.cli.report.command import Report, gather, page
from tests.acceptance.ratchet_command import ForkedRatchet
from tests.services.cli.report.reading_page import ReadPage
from tests.services.cli.whole_loop import WholeLoop

HOSTILE = "</script><img src=http://evil.example/x onerror=alert(1)>"


@pytest.fixture
def copy(loop: WholeLoop, tmp_path: Path) -> Path:
    """Of the loop's folder, with a training report in the folder of v1.0.1."""
    folder = shutil.copytree(loop.folder, tmp_path / "copy")
    home = folder / "adapters" / "small" / "v1.0.1"
    home.chmod(0o755)
    steps = [{"step": n, "loss": 1 / n, "reward": n / 50, "clip_fraction": 0.01} for n in range(1, 41)]
    counts = {"groups_used": 214, HOSTILE: 3}
    (home / TRAINING_REPORT).write_text(json.dumps({"steps": steps, "data": {"counts": counts}}))
    return folder


def read(folder: Path) -> ReadPage:
    return safe(page(gather(folder, folder / "adapters")))


def safe(text: str) -> ReadPage:
    shown = ReadPage(text)
    shown.check_that_nothing_else_acts()
    return shown


def test_a_whole_loop_is_in_the_data_of_one_page(copy: Path) -> None:
    shown = read(copy)

    (small,) = shown.data["agents"]
    states = {one["version"]: one["state"] for one in small["agent"]["versions"]}
    assert states == {"v1.0.0": "superseded", "v1.0.1": "stable", "v1.0.2": "rolled_back", "v1.0.3": "canary"}
    verdicts = [one["decision"]["verdict"] for one in small["experiments"]]
    assert verdicts == ["promote", "roll_back", "continue"]
    assert all(one["history"] for one in small["experiments"])
    assert next(run["counts"]["groups_used"] for run in small["training"] if run["version"] == "v1.0.1") == 214
    assert any("gain_score" in one["evidence"].get("evidence", {}) for one in small["decisions"])
    assert sum(one["tasks"] for one in small["scores"]["timeline"]) == small["scores"]["tasks"]


def test_a_line_of_what_is_no_agent_is_said_and_left_out(copy: Path) -> None:
    log = copy / "agent_interactions.jsonl"
    log.write_text(log.read_text().replace('"agent_id":"small"', '"agent_id":"Not an agent"', 1))

    shown = read(copy)

    assert [one["agent"]["agent_id"] for one in shown.data["agents"]] == ["small"]
    assert any("Not an agent" in words for words in shown.data["troubles"])


def test_hostile_text_is_data(copy: Path) -> None:
    assert HOSTILE in read(copy).texts


def test_what_is_no_number_or_turns_the_text_around_is_left_out() -> None:
    turned = Report((), 0, ("\u202eevil", "\ud800", str(float("nan"))))

    shown = safe(page(turned))

    assert shown.data["troubles"] == ["\ufffdevil", "\ud800", "nan"]


def test_the_figures_are_those_of_the_log(copy: Path) -> None:
    report = gather(copy, copy / "adapters").as_dict()
    lines = [json.loads(line) for line in (copy / "agent_interactions.jsonl").read_text().splitlines()]

    (small,) = report["agents"]
    assert report["lines"] == len(lines)
    assert small["tasks"] == len({line["task_id"] for line in lines})
    base = [line["score"] for line in lines if line["adapter_version"] == "v1.0.0"]
    assert small["scores"]["live"]["v1.0.0"]["mean"] == pytest.approx(sum(base) / len(base))


def test_the_command_writes_the_page_and_says_where(loop: WholeLoop, tmp_path: Path) -> None:
    ratchet = ForkedRatchet(tmp_path, loop.environment)

    ran = ratchet("report", "--out", "deep/er/page.html")

    target = tmp_path / "deep" / "er" / "page.html"
    assert (ran.code, str(target) in ran.out) == (0, True)
    safe(target.read_text())
    assert ratchet("report", "--json").json["path"] == str(tmp_path / "report.html")


def test_with_nothing_at_all_there_is_a_page_too(tmp_path: Path) -> None:
    assert ForkedRatchet(tmp_path)("report").code == 0

    shown = safe((tmp_path / "report.html").read_text())

    assert (shown.data["agents"][0]["scores"]["live"], shown.data["agents"][0]["experiments"]) == ({}, [])


def test_a_place_that_can_t_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    ran = ForkedRatchet(tmp_path)("report", "--out", "file/page.html")

    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "--out" in ran.err


def test_a_damaged_ledger_and_a_missing_part_of_the_log_are_said_and_the_rest_is_shown(copy: Path) -> None:
    ledger = copy / "adapters" / "decisions.jsonl"
    ledger.write_text(ledger.read_text().replace("trained in run", "stolen in run", 1))
    log = copy / "agent_interactions.jsonl"
    log.rename(log.with_name("agent_interactions-000000000000000-000000000000100.jsonl.zst"))

    shown = read(copy)

    assert any("was changed after it was written" in words for words in shown.texts)
    assert any(words.startswith("scores: ") for words in shown.texts)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[]",
        '{"steps": 7}',
        '{"steps": [1, {"loss": "x"}, {"step": null, "loss": 1}], "counts": []}',
        '{"steps": [{"loss": NaN}, {"loss": Infinity}], "counts": {"a": "b"}}',
        '{"steps": [{"loss": 1' + "0" * 400 + "}]}",
        "[" * 100_000,
        '{"steps": [{"loss": 1}], "counts": {"used": 1}, "padding": "' + "x" * LARGEST_REPORT + '"}',
    ],
)
def test_a_training_report_of_another_shape_leaves_out_what_it_does_not_tell(tmp_path: Path, written: str) -> None:
    (tmp_path / TRAINING_REPORT).write_text(written)

    run = training_report(tmp_path, "v1.0.1")

    assert (run.card, run.curves, run.counts) == (None, {}, {})


def test_a_training_report_behind_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"steps": [{"loss": 1}]}')
    (tmp_path / TRAINING_REPORT).symlink_to(tmp_path / "secret.json")

    assert training_report(tmp_path, "v1.0.1").curves == {}


def test_as_many_names_of_counts_as_a_person_reads(tmp_path: Path) -> None:
    counts = {f"{'n' * 200}{number}": number for number in range(1000)} | {"used": 1}
    (tmp_path / TRAINING_REPORT).write_text(json.dumps({"counts": {"used": 7} | counts}))

    told = training_report(tmp_path, "v1.0.1").counts

    assert len(told) <= 64 and max(map(len, told)) <= 100


def test_a_step_without_a_number_is_numbered_by_its_place(tmp_path: Path) -> None:
    (tmp_path / TRAINING_REPORT).write_text('{"steps": [{"loss": 2}, {"loss": 1, "reward": 0.5}]}')

    assert training_report(tmp_path, "v1.0.1").curves == {"loss": [(1.0, 2.0), (2.0, 1.0)], "reward": [(2.0, 0.5)]}
