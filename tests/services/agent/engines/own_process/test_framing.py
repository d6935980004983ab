from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.agent.engines.own_process.calls import Frames, encode_frame


@given(st.lists(st.one_of(st.text(), st.binary(), st.tuples(st.integers(), st.none()))), st.integers(1, 40))
def test_objects_arrive_whole_and_in_order_in_whatever_pieces_they_come(items: list[object], size: int) -> None:
    stream = b"".join(encode_frame(item) for item in items)
    frames = Frames()

    taken = [item for at in range(0, len(stream), size) for item in frames.take(stream[at : at + size])]

    assert taken == items
