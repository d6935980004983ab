from __future__ import annotations

import pytest

from services.trainer.data.demonstrations import doubtful


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([], []),
        ([0.1, 0.2, 0.1, 9.0, 0.3, 12.0, 0.2], [5, 3]),
        ([0.1, 0.2, 0.1, 2.9, 0.3, 0.1], []),
        ([1.0, 8.0, 15.0, 22.0, 29.0, 36.0], []),
        ([5.0] * 8, []),
    ],
    ids=["none", "two stand out", "a little more is nothing", "they differ widely", "all alike"],
)
def test_those_far_above_the_others_are_doubtful(losses: list[float], found: list[int]) -> None:
    assert doubtful(losses) == found
