"""Answers from stdin scored by a scorer of choice, in the order they came."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LINES = [
    {"task_id": "0", "prompt": "sort: ba", "answers": [{"text": "ab"}, {"text": "ba"}], "reference": "ab"},
    {"task_id": "1", "prompt": [{"role": "user", "content": "x"}], "answers": [{"text": "y"}]},
]


def once(scorer: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.scorer.once", "--scorer", scorer],
        input="".join(json.dumps(line) + "\n" for line in LINES),
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_answer_gets_its_score_after_the_scorers_name() -> None:
    ended = once("verifier:exact")

    identity, first, second = (json.loads(line) for line in ended.stdout.splitlines())
    assert identity["id"] == "verifier:exact"
    assert [one["score"] for one in first["scores"]] == [1.0, 0.0]
    assert (second["task_id"], second["scores"][0]["status"]) == ("1", "unscorable")


@pytest.mark.parametrize("scorer", ["nobody", "verifier:nothing"])
def test_a_scorer_that_is_not_there_is_a_sentence(scorer: str) -> None:
    ended = once(scorer)

    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
