"""What the gate could not judge is tried again after pauses that grow."""

from __future__ import annotations

from datetime import timedelta

from services.orchestrator.promotion.gate import FIRST_S, LONGEST_S, Pauses
from tests.ratchet.adapters.making_adapters import NOON


def test_pauses_grow_to_an_hour_and_are_said() -> None:
    now = 0.0
    pauses = Pauses(lambda: NOON + timedelta(seconds=now), lambda: now, lambda: 0.0)
    lengths = []
    for _ in range(9):
        assert pauses.is_over("v1.0.1")
        lengths.append(pauses.note_failure("v1.0.1", "no scores"))
        assert not pauses.is_over("v1.0.1")
        now += lengths[-1]

    assert lengths[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert lengths[-1] == LONGEST_S
    (said,) = pauses.among(["v1.0.0", "v1.0.1"])
    assert said.again_at == NOON + timedelta(seconds=now)
    at = f"{said.again_at:%H:%M:%S}"
    assert said.sentence == f"v1.0.1 could not be validated 9 times: no scores; it is tried again from {at} UTC on"


def test_one_waits_by_itself_and_begins_anew_once_it_was_judged() -> None:
    pauses = Pauses(lambda: NOON, lambda: 0.0, lambda: 0.0)
    pauses.note_failure("v1.0.1", "no scores")
    pauses.note_failure("v1.0.1", "no scores")

    assert pauses.is_over("v1.0.2")
    pauses.forget("v1.0.1")
    assert pauses.among(["v1.0.1"]) == []
    assert pauses.note_failure("v1.0.1", "no scores") == FIRST_S
