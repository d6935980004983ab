"""Against a model of the broker: whatever the order, each settled delivery is acknowledged once, and no other ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.amqp.subscription import AckWindow


class Channel:
    """As RabbitMQ keeps it: an ack of a tag that is not outstanding closes the channel."""

    def __init__(self, deliveries: int) -> None:
        self.outstanding = set(range(1, deliveries + 1))

    def ack(self, tag: int, multiple: bool) -> None:
        assert tag in self.outstanding, f"unknown delivery tag {tag}"
        self.outstanding -= {other for other in self.outstanding if other <= tag} if multiple else {tag}


@st.composite
def settlements(draw: st.DrawFn) -> list[list[int]]:
    """Deliveries settled in any order, some never, cut into batches."""
    order = draw(st.permutations(range(1, draw(st.integers(1, 30)) + 1)))
    settled = order[: draw(st.integers(0, len(order)))]
    cuts = sorted(draw(st.lists(st.integers(0, len(settled)), max_size=6)))
    return [settled[start:end] for start, end in zip([0, *cuts], [*cuts, len(settled)], strict=True)]


def window_of(deliveries: int) -> AckWindow:
    window = AckWindow()
    for tag in range(1, deliveries + 1):
        window.deliver(tag)
    return window


@given(settlements())
def test_exactly_what_is_settled_is_acknowledged(batches: list[list[int]]) -> None:
    window, channel, settled = window_of(30), Channel(30), set[int]()
    for batch in batches:
        for tag in batch:
            window.settle(tag)
        settled |= set(batch)
        for tag, multiple in window.take():
            channel.ack(tag, multiple)
        assert channel.outstanding == set(range(1, 31)) - settled
        assert window.owed == 0


def test_a_run_from_the_first_is_one_ack() -> None:
    window = window_of(4)
    for tag in (3, 1, 2):
        window.settle(tag)
    assert window.take() == [(3, True)]


def test_what_comes_after_a_gap_is_acknowledged_singly_and_once() -> None:
    window = window_of(6)
    for tag in (2, 4):
        window.settle(tag)
    assert window.take() == [(2, False), (4, False)]
    window.settle(1)
    assert window.take() == [(1, True)]
    window.settle(3)
    window.settle(5)
    assert window.take() == [(5, True)]


def test_nothing_settled_is_nothing_to_send() -> None:
    assert AckWindow().take() == []
    assert window_of(3).take() == []
