"""`ratchet programs compare`: the table and its JSON, out of a log."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ratchet.experiments.programs import ProgramBook
from schemas.api.programs import ProgramsCompared
from schemas.messages.response import Usage
from schemas.messages.reward import ScorerIdentity
from services.cli.app import app
from services.cli.programs.comparison import comparison
from tests.services.trainer.making_logs import SCORER, line, write_log


def shown(found: ProgramsCompared) -> list[str]:
    """Its lines on a terminal of 80 columns, as many as there are without folding, spaces made one."""
    console = Console(width=80, record=True, file=StringIO())
    console.print(comparison(found))
    return [" ".join(text.split()) for text in console.export_text().splitlines()]


def test_programs_that_different_scorers_scored_are_not_in_one_table_and_it_is_said(tmp_path: Path) -> None:
    newer = ScorerIdentity(id="verifier:graded", revision="2")
    name = "an-agent-with-a-long-name-that-goes-on"
    lines = [
        line(f"t{at}", 0, program=name, score=score, group_size=1, scorer=scorer)
        for at, (score, scorer) in enumerate([(0.2, SCORER), (0.4, SCORER), (0.8, newer), (0.6, newer)])
    ]

    rows = shown(ProgramBook(write_log(tmp_path, lines)).compare())

    assert rows[0] == "small, scored by verifier:graded 2"
    assert [row.split()[1:3] for row in rows if row.startswith("an-agent")] == [["2", "0.700"], ["2", "0.300"]]
    assert "small, scored by verifier:graded 1" in rows
    assert rows[-1] == "Scores by different scorers, or revisions, can't be held against each other."


def test_an_agent_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "RATCHET_LOGS_DIR", str(write_log(tmp_path, [line("t", 0, program="mine", agent_id="own", group_size=1)]))
    )

    strange, own, fleets = (
        CliRunner().invoke(app, ["programs", "compare", "--json", "--agent", agent])
        for agent in ("nobody", "own", "small")
    )

    assert (strange.exit_code, own.exit_code, fleets.exit_code) == (2, 0, 0)
    assert "there is no agent 'nobody'" in strange.output and "own" in strange.output


def test_each_program_is_a_row_with_what_it_earned_and_took(tmp_path: Path) -> None:
    usage = Usage(calls=3, sampled_tokens=1200, seconds=2.25, breaks={"rewritten": 4})
    lines = [
        line(f"t{n}", 0, program="aider", score=score, usage=usage, group_size=1, sample_status="limit")
        for n, score in enumerate((0.5, 0.7))
    ]
    lines.append(line("t3", 0, program="shell", score=None, group_size=1, sample_status="lost"))
    found = ProgramBook(write_log(tmp_path, lines)).compare()

    assert shown(found) == [
        "small, scored by verifier:graded",
        "program rollouts score tokens calls seconds",
        "aider 2 0.600 ± 0.196 1,200 3.0 2.25",
        "shell 1 – – – –",
        "aider: 2 limit; breaks: 8 rewritten",
        "shell: 1 lost",
    ]
    (aider, _) = json.loads(found.model_dump_json())["items"]
    assert (aider["score"]["tasks"], aider["ended"], aider["seconds"]) == (2, {"limit": 2}, 2.25)
