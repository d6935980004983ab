"""The time left: as planned at first, then at the pace that was seen."""

from __future__ import annotations

import pytest

from demos.time_left import Pace, TimeLeft, further_turns


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_before_anything_is_done_it_is_the_plan() -> None:
    assert TimeLeft({"start": 10, "rest": 50}, Clock()).seconds() == 60


def test_a_pace_half_as_fast_doubles_what_is_left() -> None:
    clock = Clock()
    left = TimeLeft({"start": 10, "middle": 40_000, "end": 50_000}, clock)
    left.at("middle")

    clock.now += 40_000
    left.at("middle", 0.5)

    assert left.seconds() == pytest.approx(70_000 * 2.0, rel=0.01)


def test_the_first_stage_and_the_first_answers_say_little_about_the_rest() -> None:
    clock = Clock()
    left = TimeLeft({"start": 10, "rest": 600}, clock)

    clock.now += 100
    left.at("rest")
    clock.now += 6
    left.at("rest", 0.001)

    assert 600 < left.seconds() < 660


def test_a_round_that_there_will_be_no_time_for_is_not_counted() -> None:
    stages = {"start": 10, "turn 1": 400, "turn 2": 400, "proof 2": 100, "end": 50}
    rounds = [("turn 2", "proof 2")]

    assert TimeLeft(stages, Clock(), rounds, latest=500).seconds() == 960
    assert TimeLeft(stages, Clock(), rounds, latest=400).seconds() == 460


def test_a_round_that_goes_on_is_counted_to_its_end() -> None:
    clock = Clock()
    left = TimeLeft({"start": 10, "turn 2": 400, "proof 2": 100}, clock, [("turn 2", "proof 2")], latest=5)

    clock.now += 20
    left.at("turn 2")

    assert left.seconds() == 500


def test_a_share_beyond_the_whole_counts_as_the_whole() -> None:
    clock = Clock()
    left = TimeLeft({"one": 10, "two": 10}, clock)

    clock.now += 20
    left.at("two", 7.0)

    assert left.seconds() == 0.0


def test_every_stage_the_demo_names_is_in_the_plan() -> None:
    pace = Pace(start_s=1.0, answer_s=1.0, trained_s=1.0, proved_s=1.0)
    stages = pace.stages(tasks=4, samples=2, group=8, groups=8, turns=2, also=("blanked",))

    assert list(stages) == [
        "start",
        "before",
        *("collect 1", "train 1", "prove 1"),
        *("collect 2", "train 2", "prove 2"),
        "after",
        "blanked",
    ]
    assert all(name in stages for turn in further_turns(2) for name in turn)
