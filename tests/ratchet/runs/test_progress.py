"""How a run stands while it goes: its pace, its curves across attempts, and the file that others look into."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from ratchet.runs.progress import ProgressFile, ProgressTracker, RunProgressRecord, read_progress
from tests.ratchet.adapters.making_adapters import NOON


def step(number: int, of: int = 10, **figures: Any) -> dict[str, Any]:
    return {"stage": "training", "step": number, "steps": of} | figures


def after(*said: dict[str, Any], before: RunProgressRecord | None = None) -> RunProgressRecord:
    """Ten seconds between what is told."""
    standing = ProgressTracker(before)
    for number, one in enumerate(said):
        standing.record(one, 10.0 * number)
    return standing.at(NOON)


def test_the_rest_is_reckoned_at_the_pace_of_this_attempt() -> None:
    assert after({"stage": "reading"}).progress.seconds_left is None
    assert after(step(0)).progress.seconds_left is None
    assert after(step(0), step(1), step(2)).progress.seconds_left == 80.0
    assert after(step(6), step(7), step(8)).progress.seconds_left == 20.0
    assert after(step(9), step(10)).progress.seconds_left == 0.0


def test_how_much_of_a_stage_is_done() -> None:
    reading = {"stage": "reading", "share": 0.25}

    assert after(reading).progress.share == 0.25
    assert after(reading, {"stage": "loading"}).progress.share is None
    assert after(step(0), step(4)).progress.share == 0.4
    assert after(step(0, work_done=0, work=200), step(1, work_done=150, work=200)).progress.share == 0.75


def shuffled_passes(rng: random.Random, lengths: list[int], passes: int) -> list[int]:
    """Tokens of each step, where each pass shuffles which answers are together."""
    steps = []
    for _ in range(passes):
        rng.shuffle(lengths)
        steps += [sum(lengths[start : start + 8]) for start in range(0, len(lengths), 8)]
    return steps


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("each", "by_token"), [(0.0, 0.01), (3.0, 0.0), (2.0, 0.005)], ids=["by token", "alike", "both"]
)
def test_the_time_left_is_right_within_a_fifth_after_ten_steps(seed: int, each: float, by_token: float) -> None:
    # given answers with a long tail, a first step that warms up, and a machine that is not always as fast
    rng = random.Random(seed)
    work = shuffled_passes(rng, [round(min(4000, 30 * rng.paretovariate(1.1))) for _ in range(160)], 4)
    seconds = [(each + by_token * tokens) * rng.uniform(0.85, 1.15) for tokens in work]
    seconds[0] = 6 * seconds[0] + 5.0

    standing, clock, done = ProgressTracker(), 0.0, 0
    standing.record(step(0, of=len(work), work_done=0, work=sum(work)), clock)
    errors = []
    for number, (tokens, took) in enumerate(zip(work, seconds, strict=True), start=1):
        standing.record(step(number - 1, of=len(work), work_done=done + tokens // 2, work=sum(work)), clock + took / 2)
        clock, done = clock + took, done + tokens
        standing.record(step(number, of=len(work), work_done=done, work=sum(work)), clock)
        if 10 <= number <= 0.8 * len(work):
            left = standing.at(NOON).progress.seconds_left
            assert left is not None
            errors.append(abs(left / sum(seconds[number:]) - 1.0))

    # then, where steps to come cost more or less than those that were, the estimate knows
    assert max(errors) < 0.2


@pytest.mark.parametrize(
    ("first", "steps", "kept"),
    [
        (0, 15, {"told_after_ten_steps_s": 50.0, "took_after_ten_steps_s": 70.0}),
        (4, 19, {"told_after_ten_steps_s": 50.0, "took_after_ten_steps_s": 70.0}),
        (0, 10, {}),
        (4, 14, {}),
    ],
    ids=["begun", "taken up", "ten steps", "ten steps taken up"],
)
def test_what_was_told_after_ten_steps_is_kept_beside_what_the_rest_took(
    first: int, steps: int, kept: dict[str, float]
) -> None:
    # ten steps of ten seconds each, then fourteen a step
    standing, clock = ProgressTracker(), 0.0
    for number in range(first, steps + 1):
        assert standing.time_left_told == {}
        standing.record(step(number, of=steps), clock)
        clock += 10.0 if number < first + 10 else 14.0
    standing.record(step(steps, of=steps), clock + 100.0)  # more said at the end changes nothing

    assert standing.time_left_told == kept


def test_curves_hold_what_can_be_drawn() -> None:
    standing = after(step(1, loss=0.5, kl=0.0, gap=9.0), step(2, loss=math.nan, kl=0.0), step(3, loss=0.2, kl=0.0))

    assert standing.curves == {"loss": [(1.0, 0.5), (3.0, 0.2)]}


def test_an_attempt_goes_on_with_the_curves_of_the_one_before_from_its_checkpoint_on() -> None:
    killed = after({"stage": "selected", "counts": {"groups": 8}}, *(step(one, loss=float(one)) for one in range(1, 6)))

    resumed = after(step(3), step(4, loss=4.5), before=killed)
    begun_anew = after(step(0), before=killed)

    assert resumed.curves == {"loss": [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.5)]}
    assert resumed.counts == {"groups": 8}
    assert begun_anew.curves == {}


def test_a_long_run_is_thinned_and_keeps_its_last_step() -> None:
    standing = after(*(step(number, of=9000, loss=1 / number) for number in range(1, 9001)))

    points = standing.curves["loss"]
    assert len(points) == 300
    assert points[-1][0] == 9000
    assert len(standing.model_dump_json()) < 20_000


def test_the_file_is_written_at_each_stage_and_every_few_seconds(tmp_path: Path) -> None:
    path, now = tmp_path / "progress.json", [0.0]
    file = ProgressFile(path, lambda: NOON, seconds=lambda: now[0])

    def seen_after(seconds: float, said: dict[str, Any]) -> tuple[str, int | None]:
        now[0] += seconds
        file.record(said)
        standing = read_progress(path)
        assert standing is not None
        return standing.progress.stage, standing.progress.step

    assert seen_after(0.0, {"stage": "reading"}) == ("reading", None)
    assert seen_after(0.1, step(0)) == ("training", 0)
    assert seen_after(0.1, step(1)) == ("training", 0)
    assert seen_after(2.0, step(2)) == ("training", 2)
    assert [one.name for one in tmp_path.iterdir()] == ["progress.json"]


def test_a_file_that_is_damaged_or_missing_tells_nothing_and_one_that_can_t_be_written_stops_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "progress.json"
    assert read_progress(path) is None
    path.write_text('{"progress": {"stage"')
    assert read_progress(path) is None

    nowhere = ProgressFile(tmp_path / "removed" / "progress.json", lambda: NOON)
    nowhere.record({"stage": "reading"})
    nowhere.record(step(1))

    assert not (tmp_path / "removed").exists()
