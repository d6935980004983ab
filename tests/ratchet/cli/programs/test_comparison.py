"""`ratchet programs compare`: the table and its JSON, out of a log."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from ratchet.cli.programs.comparison import comparison
from ratchet.experiments.programs import ProgramBook
from schemas.messages.response import Usage
from tests.services.trainer.making_logs import line, write_log


def test_each_program_is_a_row_with_what_it_earned_and_took(tmp_path: Path) -> None:
    usage = Usage(calls=3, sampled_tokens=1200, seconds=2.25, breaks={"rewritten": 4})
    lines = [
        line(f"t{n}", 0, program="aider", score=score, usage=usage, group_size=1, sample_status="limit")
        for n, score in enumerate((0.5, 0.7))
    ]
    lines.append(line("t3", 0, program="shell", score=None, group_size=1, sample_status="lost"))
    found = ProgramBook(write_log(tmp_path, lines)).compared()
    console = Console(width=200, record=True, file=StringIO())

    console.print(comparison(found))

    rows = [" ".join(text.split()) for text in console.export_text().splitlines() if text.startswith("small")]
    assert rows[0] == "small aider 2 0.600 ± 0.196 1,200 3.0 2.25 2 limit 8 rewritten"
    assert rows[1] == "small shell 1 – – – – 1 lost –"
    (aider, _) = json.loads(found.model_dump_json())["items"]
    assert (aider["score"]["tasks"], aider["ended"], aider["seconds"]) == (2, {"limit": 2}, 2.25)
