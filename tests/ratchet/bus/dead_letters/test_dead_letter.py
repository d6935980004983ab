"""What a dead letter says of itself, whoever moved it."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from ratchet.bus.amqp.frames import Properties
from ratchet.bus.dead_letters.letter import dead_letter, headers_to_go_again

OURS = {
    "x-ratchet-reason": "not JSON",
    "x-ratchet-queue": "tasks",
    "x-ratchet-attempts": 3,
    "x-ratchet-at": "2026-01-02T03:04:05+00:00",
    "x-ratchet-by": "orchestrator",
    "traceparent": "00-trace",
}
DEATH = {"reason": "delivery_limit", "queue": "t1.work.small", "count": 1, "time": datetime(2026, 1, 2, 3, 4, 5)}


def test_a_letter_a_service_wrote_says_all_in_its_headers() -> None:
    letter = dead_letter(Properties(headers=OURS, type="task.v1", message_id="m1"), b"{", "t1.")

    assert (letter.queue, letter.reason, letter.attempts) == ("t1.tasks", "not JSON", 3)
    assert (letter.at, letter.by) == ("2026-01-02T03:04:05+00:00", "orchestrator")


def test_a_letter_the_broker_moved_is_explained() -> None:
    letter = dead_letter(Properties(headers={"x-death": [DEATH]}), b"poison", "t1.")

    assert (letter.queue, letter.by, letter.at) == ("t1.work.small", "broker", "2026-01-02T03:04:05+00:00")
    assert "may kill whoever handles it" in letter.reason


def test_a_letter_that_says_nothing_is_still_shown() -> None:
    letter = dead_letter(Properties(), b"\xff\x00abc", "")

    assert (letter.queue, letter.attempts) == (None, None)
    assert letter.beginning == "\\xff·abc"


@given(st.binary(max_size=300))
def test_any_body_has_a_printable_beginning(body: bytes) -> None:
    assert dead_letter(Properties(), body, "").beginning.isprintable()


def test_its_id_is_the_same_at_every_look_and_differs_between_letters() -> None:
    def letter_id(body: bytes, message_id: str, headers: dict[str, object]) -> str:
        return dead_letter(Properties(message_id=message_id, headers=headers), body, "").id

    assert letter_id(b"a", "m", {}) == letter_id(b"a", "m", OURS)
    assert len({letter_id(b"a", "m", {}), letter_id(b"b", "m", {}), letter_id(b"a", "n", {})}) == 3


def test_it_goes_back_with_its_trace_and_without_its_history() -> None:
    history = OURS | {"x-ratchet-attempt": 7, "x-death": [DEATH], "x-delivery-count": 20}

    assert headers_to_go_again(history) == {"traceparent": "00-trace"}
    assert headers_to_go_again(None) == {}
