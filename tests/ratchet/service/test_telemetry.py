"""The trace of a task: taken over from whoever published it, where it is one."""

from __future__ import annotations

import pytest

from ratchet.service.telemetry import TRACE_HEADER, WELL_FORMED, new_trace_parent, trace_parent_of

CARRIED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_well_formed_trace_goes_on() -> None:
    assert trace_parent_of({TRACE_HEADER: CARRIED}) == CARRIED


@pytest.mark.parametrize(
    "carried",
    [
        None,
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        CARRIED.upper(),
        CARRIED[:-1],
        CARRIED + "\n",
        "-" * 3 + "x" * 52,
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
    ],
    ids=repr,
)
def test_what_is_no_trace_is_replaced_by_a_new_one(carried: object) -> None:
    trace = trace_parent_of({TRACE_HEADER: carried})

    assert trace != carried
    assert WELL_FORMED.fullmatch(trace)


def test_every_trace_is_new() -> None:
    assert new_trace_parent() != new_trace_parent()
