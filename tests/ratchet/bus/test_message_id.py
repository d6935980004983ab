from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.protocol import MAX_BYTES, derived_id


def test_a_short_id_is_readable() -> None:
    assert derived_id("t-1", "reward/verifier:exact@1") == "t-1/reward/verifier:exact@1"


def test_a_long_one_is_cut_and_stays_its_own() -> None:
    first, second = derived_id("é" * 200, "reward/a@1"), derived_id("é" * 200, "reward/a@2")
    assert first != second
    assert first.startswith("é" * 90)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=200), st.text("abc/@1", max_size=300))
def test_it_always_fits_an_amqp_short_string(task_id: str, event: str) -> None:
    assert len(derived_id(task_id, event).encode()) <= MAX_BYTES
