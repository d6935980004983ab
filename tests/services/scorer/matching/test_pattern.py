from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.service.errors import ScorerError
from services.scorer.matching.text import matches


@pytest.mark.parametrize(
    ("answer", "pattern", "score"),
    [
        ("order 66 executed", r"\b66\b", 1.0),
        ("order 66", r"^66$", 0.0),
        ("66", r"^66$", 1.0),
        ("Yes", r"(?i)yes|no", 1.0),
        ("größer", r"^\pL+$", 1.0),
        ("", r"^$", 1.0),
    ],
)
def test_a_pattern_is_searched(answer: str, pattern: str, score: float) -> None:
    assert matches(answer, pattern) == score


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("(", "missing"),
        ("*a", "no argument"),
        (r"(?=a)b", "invalid perl operator"),
        ("a" * 10_001, "10001 characters"),
        ("(?:(?:a{1000}){1000}){1000}", "invalid repetition size"),
    ],
)
def test_what_is_no_pattern_is_said(pattern: str, fault: str) -> None:
    with pytest.raises(ScorerError, match=fault):
        matches("text", pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*$", "(a+)+$", "(a|aa)+$", "(a|a?)+$", "(.*a){25}!$", "(?:(?:a{1,9}){1,9}){1,9}$", "(?:a?){400}a{400}b"],
)
def test_a_pattern_that_makes_others_backtrack_for_ever_is_answered_soon(pattern: str) -> None:
    began = time.process_time()
    matches("a" * 100_000 + "!", pattern)
    assert time.process_time() - began < 3


def test_other_threads_run_during_a_slow_search() -> None:
    ticks = 0
    done = threading.Event()

    text = "".join(random.Random(0).choices("ab", k=50_000))

    def search() -> None:
        matches(text, "[ab]*a[ab]{900}c")
        done.set()

    searching = threading.Thread(target=search)
    searching.start()
    while not done.wait(0.005):
        ticks += 1
    searching.join()
    assert ticks > 5


@given(st.text(max_size=50), st.text(max_size=30) | st.text("ab()[]{}*+?|^$\\1,.-", max_size=30))
def test_any_pattern_gives_a_score_or_a_scorer_error(answer: str, pattern: str) -> None:
    try:
        assert matches(answer, pattern) in (0.0, 1.0)
    except ScorerError as error:
        assert str(error)
