"""A model among the scorers is found by the scorer's id."""

from __future__ import annotations

import pytest

from ratchet.experiments.served import unaudited_judge


@pytest.mark.parametrize(
    ("scorer", "is_judge"),
    [
        ("judge:absolute", True),
        ("likelihood", True),
        ("0.7*verifier:exact + 0.3*judge:relative", True),
        ("verifier:exact else judge:absolute", True),
        ("verifier:exact", False),
        ("python:my.judge", False),
        (None, False),
    ],
)
def test_a_judge_is_found_in_what_scores(scorer: str | None, is_judge: bool) -> None:
    assert (unaudited_judge(scorer, audited=False) is not None) is is_judge
    assert unaudited_judge(scorer, audited=True) is None
