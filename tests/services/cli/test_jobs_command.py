"""`ratchet jobs`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from services.cli.app import app


def test_results_that_can_not_be_had_take_no_others_place(tmp_path: Path) -> None:
    kept = tmp_path / "results.jsonl"
    kept.write_text("of a job that is forgotten by now\n")

    told = CliRunner().invoke(app, ["jobs", "results", "monday", "--out", str(kept), "--url", "http://127.0.0.1:1"])

    assert told.exit_code != 0
    assert kept.read_text() == "of a job that is forgotten by now\n"
