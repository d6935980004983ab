"""`ratchet report`: one page, whole, offline, of a real loop, of nothing, and of things gone wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ratchet.cli.report.gathered import gather
from ratchet.cli.report.page import page
from ratchet.training_runs.report import TRAINING_REPORT, training_report
from tests.acceptance.ratchet_command import Ratchet
from tests.ratchet.cli.report.reading_html import ReadPage
from tests.ratchet.cli.whole_loop import WholeLoop

HOSTILE = "</script><img src=http://evil.example/x onerror=alert(1)>"
ACTING = {"script", "img", "iframe", "object", "embed", "link", "form", "base", "audio", "video", "image", "use"}


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
    """A page that is balanced, needs nothing from outside, and in which nothing acts."""
    shown = ReadPage(text)
    assert shown.tags.isdisjoint(ACTING)
    assert not any(name.startswith("on") for _, attributes in shown.elements for name in attributes)
    assert not any(shown.all(name) for name in ("src", "srcset", "action", "xlink:href"))
    ids = shown.all("id")
    assert len(ids) == len(set(ids))
    assert all(target.startswith("#") and target[1:] in ids for target in shown.all("href"))
    style = next(data for data in shown.texts if ":root" in data)
    assert "url(" not in style and "@import" not in style
    return shown


def test_a_whole_loop_on_one_page(copy: Path) -> None:
    shown = read(copy)

    assert {"v1.0.0", "v1.0.1", "v1.0.2", "v1.0.3"} <= set(shown.texts)
    assert {"superseded", "stable", "rolled back", "canary"} <= set(shown.texts)
    assert "The candidate is proved better: it becomes the primary." in shown.texts
    assert "Neither proved nor refuted yet: the experiment goes on." in shown.texts
    assert '"gain_score"' in shown.text
    assert any("groups used 214" in words for words in shown.texts)
    assert len([tag for tag, _ in shown.elements if tag == "svg"]) == 3 + 2 * 4 + 3


def test_the_page_forbids_scripts_and_anything_from_elsewhere(copy: Path) -> None:
    policies = [attributes for tag, attributes in read(copy).elements if "http-equiv" in attributes]

    assert policies[0]["content"].startswith("default-src 'none'")


def test_hostile_text_is_text(copy: Path) -> None:
    shown = read(copy)

    assert any(HOSTILE in words for words in shown.texts)


def test_the_figures_are_those_of_the_log(copy: Path) -> None:
    report = gather(copy, copy / "adapters").as_dict()
    lines = [json.loads(line) for line in (copy / "agent_interactions.jsonl").read_text().splitlines()]

    (small,) = report["agents"]
    assert report["lines"] == len(lines)
    assert small["tasks"] == len({line["task_id"] for line in lines})
    base = [line["score"] for line in lines if line["adapter_version"] == "v1.0.0"]
    assert small["scores"]["live"]["v1.0.0"]["mean"] == pytest.approx(sum(base) / len(base))


def test_the_command_writes_the_page_and_says_where(loop: WholeLoop, tmp_path: Path) -> None:
    ratchet = Ratchet(tmp_path, loop.environment)

    ran = ratchet("report", "--out", "deep/er/page.html")

    target = tmp_path / "deep" / "er" / "page.html"
    assert (ran.code, str(target) in ran.out) == (0, True)
    safe(target.read_text())
    assert ratchet("report", "--json").json["path"] == str(tmp_path / "report.html")


def test_with_nothing_at_all_the_page_says_what_to_type(tmp_path: Path) -> None:
    assert Ratchet(tmp_path)("report").code == 0

    shown = safe((tmp_path / "report.html").read_text())

    assert 'ratchet submit "your task"' in shown.texts
    assert "ratchet train" in shown.texts


def test_a_place_that_can_t_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    ran = Ratchet(tmp_path)("report", "--out", "file/page.html")

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
    ],
)
def test_a_training_report_of_another_shape_leaves_out_what_it_does_not_tell(tmp_path: Path, written: str) -> None:
    (tmp_path / TRAINING_REPORT).write_text(written)

    run = training_report(tmp_path, "v1.0.1")

    assert (run.card, run.curves, run.counts) == (None, {}, {})


def test_a_step_without_a_number_is_numbered_by_its_place(tmp_path: Path) -> None:
    (tmp_path / TRAINING_REPORT).write_text('{"steps": [{"loss": 2}, {"loss": 1, "reward": 0.5}]}')

    assert training_report(tmp_path, "v1.0.1").curves == {"loss": [(1.0, 2.0), (2.0, 1.0)], "reward": [(2.0, 0.5)]}
