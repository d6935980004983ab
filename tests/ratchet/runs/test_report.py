"""What is read of a training, and how much of a curve is shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.runs.progress import thin_out


@given(st.integers(1, 2000))
def test_thinning_keeps_the_ends_and_the_order(count: int) -> None:
    points = [(float(n), 0.0) for n in range(count)]

    kept = thin_out(points)

    assert len(kept) == min(count, 300)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert kept == sorted(kept)
