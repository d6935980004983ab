"""The time left: as planned at first, then at the pace that was seen."""

from __future__ import annotations

from ratchet.cli.demo.real.plan import RealPlan, stages
from ratchet.cli.demo.real.time_left import TimeLeft


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_before_anything_is_done_it_is_the_plan() -> None:
    assert TimeLeft({"start": 10, "rest": 50}, Clock()).seconds() == 60


def test_a_pace_half_as_fast_doubles_what_is_left() -> None:
    clock = Clock()
    left = TimeLeft({"start": 10, "middle": 40, "end": 50}, clock)

    clock.now += 60
    left.at("middle", 0.5)

    assert left.seconds() == 70 * 2.0


def test_a_share_beyond_the_whole_counts_as_the_whole() -> None:
    clock = Clock()
    left = TimeLeft({"one": 10, "two": 10}, clock)

    clock.now += 20
    left.at("two", 7.0)

    assert left.seconds() == 0.0


def test_every_stage_the_demo_names_is_in_the_plan() -> None:
    plan = RealPlan(tasks=4, samples=2, group=8, seed=1, stall_s=1.0)

    assert list(stages(plan, turns=2, groups=8)) == [
        "start",
        "before",
        *("collect 1", "train 1", "prove 1"),
        *("collect 2", "train 2", "prove 2"),
        "after",
    ]
