"""What counts as a refusal."""

from __future__ import annotations

import pytest

from ratchet.experiments.logged import is_refusal


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        ("", True),
        (" \n", True),
        ("I'm sorry, but I can't assist with that.", True),
        ("I’m afraid that is not possible.", True),
        ("**Sorry**, no.", True),
        ("As an AI language model, I have no opinion.", True),
        ("Unfortunately, I am not able to do this.", True),
        ("I cannot answer.", True),
        ("abcd", False),
        ("The clerk said: I'm sorry, we are closed.", False),
        ("I candied the oranges.", False),
        ("sorrynot", False),
    ],
)
def test_what_begins_as_a_refusal(answer: str, refuses: bool) -> None:
    assert is_refusal(answer) is refuses
