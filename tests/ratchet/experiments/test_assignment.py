"""Arms are drawn at the stated share, stay what they are, and know nothing of each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.experiments.assignment import Assignment, assign, candidate_share, draw

UNITS = [f"session-{index}" for index in range(20_000)]
names = st.text(min_size=1, max_size=20)


def test_the_candidate_gets_its_share() -> None:
    for share in (0.05, 0.25, 0.5):
        candidates = sum(assign("experiment", unit, share).is_candidate for unit in UNITS)

        assert abs(candidates / len(UNITS) - share) < 0.015


@given(experiment=names, unit=names, share=st.floats(0.01, 0.99))
def test_a_unit_gets_the_same_arm_each_time(experiment: str, unit: str, share: float) -> None:
    assert assign(experiment, unit, share) == assign(experiment, unit, share)


@given(experiment=names, unit=names, share=st.floats(0.01, 0.99))
def test_the_propensity_is_that_of_the_arm_drawn(experiment: str, unit: str, share: float) -> None:
    assignment = assign(experiment, unit, share)

    assert assignment.propensity == (share if assignment.is_candidate else 1.0 - share)
    assert abs(candidate_share(assignment) - share) < 1e-15


def test_experiments_draw_independently() -> None:
    both = sum(assign("first", u, 0.5).is_candidate and assign("second", u, 0.5).is_candidate for u in UNITS)

    assert abs(both / len(UNITS) - 0.25) < 0.015


def test_who_does_not_know_the_secret_can_not_choose_ids_by_their_arm() -> None:
    chosen = [unit for unit in UNITS if draw("experiment", unit) < 0.5]

    candidates = sum(assign("experiment", unit, 0.5, "a secret").is_candidate for unit in chosen)

    assert abs(candidates / len(chosen) - 0.5) < 0.02


def test_names_are_not_run_together() -> None:
    assert draw("ab", "c") != draw("a", "bc")


@given(experiment=names, unit=names)
def test_a_draw_lies_in_the_unit_interval(experiment: str, unit: str) -> None:
    assert 0.0 <= draw(experiment, unit) < 1.0


def test_an_assignment_is_a_value() -> None:
    assert Assignment(True, 0.25) == Assignment(is_candidate=True, propensity=0.25)
