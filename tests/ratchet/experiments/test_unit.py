"""Units count in the order of assignment; a session is one unit, once, and closes at the same task in every replay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.unit import Enrolment, Outcome, Unit, UnitLine
from tests.ratchet.experiments.making_experiments import enrolment

GOOD = Outcome(succeeded=True, score=1.0, length=10.0, latency_s=1.0, scorer="s")
BAD = Outcome(succeeded=True, score=0.0, length=30.0, latency_s=3.0, scorer="t")
LOST = Outcome(succeeded=False)


def line(session_tasks: int = 3, window_s: float = 100.0) -> UnitLine:
    return UnitLine(session_tasks=session_tasks, session_window_s=window_s)


def session(sequence: int, at: float, name: str = "anna") -> Enrolment:
    return enrolment(sequence, unit_id=name, in_session=True, at=at)


def sequences(units: UnitLine) -> list[int]:
    return [unit.sequence for unit in units.finished_units()]


def test_a_late_unit_holds_up_those_behind_it() -> None:
    units = line()
    for sequence in (3, 4, 7):
        units.enrol(enrolment(sequence))

    units.observe(4, GOOD)
    units.observe(7, GOOD)
    before = sequences(units)
    units.observe(3, LOST)

    assert before == []
    assert sequences(units) == [3, 4, 7]


@given(order=st.permutations(range(8)))
def test_whatever_the_order_of_arrival_units_come_out_in_that_of_assignment(order: list[int]) -> None:
    units, out = line(), []
    for sequence in range(8):
        units.enrol(enrolment(sequence))

    for sequence in order:
        units.observe(sequence, GOOD)
        out += sequences(units)

    assert out == list(range(8))


def test_a_second_end_of_a_task_and_a_foreign_task_are_ignored() -> None:
    units = line()
    units.enrol(enrolment(0))
    units.enrol(enrolment(1))

    units.observe(1, GOOD)
    units.observe(1, BAD)
    units.observe(99, BAD)
    units.observe(0, GOOD)

    assert [unit.score for unit in units.finished_units()] == [1.0, 1.0]


def test_a_session_is_the_mean_of_its_first_tasks() -> None:
    units = line(session_tasks=3)
    for sequence in range(3):
        units.enrol(session(sequence, at=float(sequence)))

    for sequence, outcome in enumerate((GOOD, BAD, LOST)):
        units.observe(sequence, outcome)

    (unit,) = units.finished_units()
    assert (unit.score, unit.length, unit.latency_s) == (0.5, 20.0, 2.0)
    assert unit.success == pytest.approx(2 / 3)
    assert unit.scorers == ("s", "t")


def test_a_session_waits_for_its_window_and_no_longer() -> None:
    units = line(window_s=100.0)
    units.enrol(session(0, at=0.0))
    units.observe(0, GOOD)
    units.advance(99.9)
    before = sequences(units)

    units.advance(100.0)

    assert before == []
    assert sequences(units) == [0]


def test_a_task_after_the_window_does_not_count() -> None:
    units = line(window_s=100.0)
    units.enrol(session(0, at=0.0))
    units.enrol(session(1, at=100.0))

    units.observe(0, GOOD)
    units.observe(1, BAD)

    assert [unit.score for unit in units.finished_units()] == [1.0]


def test_a_session_that_comes_back_keeps_its_arm_and_counts_no_second_time() -> None:
    units = line(session_tasks=1)
    units.enrol(session(0, at=0.0))
    units.observe(0, GOOD)
    first = list(units.finished_units())

    units.enrol(session(1, at=5000.0))
    units.observe(1, BAD)

    assert len(first) == 1
    assert list(units.finished_units()) == []
    assert units.arm_of("anna") == session(0, at=0.0).assignment
    assert units.enrolled == 1


def test_a_clock_that_goes_back_reopens_nothing() -> None:
    units = line(window_s=100.0)
    units.enrol(session(0, at=0.0))
    units.enrol(enrolment(1, at=200.0))
    units.enrol(session(2, at=50.0))

    units.observe(0, GOOD)
    units.observe(1, GOOD)
    units.observe(2, BAD)

    assert [unit.score for unit in units.finished_units()] == [1.0, 1.0]


def test_open_candidates_are_those_not_yet_out() -> None:
    units = line()
    units.enrol(enrolment(0, is_candidate=True))
    units.enrol(enrolment(1, is_candidate=False))
    units.enrol(enrolment(2, is_candidate=True))

    units.observe(0, GOOD)
    list(units.finished_units())

    assert units.open_candidates == 1


def test_a_unit_that_was_lost_has_no_score_and_no_success() -> None:
    units = line()
    units.enrol(enrolment(0, is_candidate=True, share=0.25))

    units.observe(0, LOST)

    (unit,) = units.finished_units()
    assert unit == Unit(0, True, 0.25, "", 0.0, None, 0.0, 0.0, 0.0, None, None, None, ())
