"""When a process that gets nowhere has to end: as a table, on a clock that is given; and once with a real process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.runtime.watchdog import LONGEST_BEAT_S, Watchdog

ROOT = Path(__file__).parents[3]
HANGS = "'tasks': no progress: 1 in hand, and none of them settled for 31 s"


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(limit_s: float = 300.0) -> tuple[Watchdog, Time]:
    clock = Time()
    return Watchdog(limit_s, 40.0, seconds=clock), clock


def test_work_that_hangs_ends_the_process_after_the_limit_and_not_before() -> None:
    watchdog, clock = watched()

    for second in range(1, 300):
        clock.now = second
        assert watchdog.beat(HANGS) is None
    clock.now = 300

    assert watchdog.beat(HANGS) == f"{HANGS}; for 300 s more nothing changed (RATCHET_RESTART_STALLED_S)"


def test_one_step_in_between_starts_the_count_anew() -> None:
    watchdog, clock = watched()
    reasons = [HANGS] * 299 + [None] + [HANGS] * 299

    said = []
    for second, reason in enumerate(reasons, start=1):
        clock.now = second
        said.append(watchdog.beat(reason))

    assert said == [None] * len(reasons)


@pytest.mark.parametrize("away_s", [3_600.0, 86_400.0])
def test_time_in_which_the_process_was_frozen_does_not_count(away_s: float) -> None:
    watchdog, clock = watched()
    clock.now = 1.0
    watchdog.beat(HANGS)
    watchdog.look()

    clock.now += away_s

    assert watchdog.look() is None
    assert watchdog.beat(HANGS) is None
    assert watchdog.look() is None


def test_a_loop_that_does_not_turn_is_noticed_beside_it() -> None:
    watchdog, clock = watched(10.0)
    watchdog.beat(None)

    said = []
    for second in range(1, 13):
        clock.now = second
        said.append(watchdog.look())

    assert said == [None] * 11 + ["its event loop has not turned for 12 s (RATCHET_RESTART_STALLED_S)"]


def test_an_orderly_end_that_comes_to_no_end_is_cut_short() -> None:
    watchdog, clock = watched(LONGEST_BEAT_S)
    clock.now = LONGEST_BEAT_S
    assert watchdog.beat(HANGS)

    said = []
    for second in range(41):
        clock.now += 1
        said.append((second, watchdog.look()))

    assert [second for second, why in said if why] == [36, 37, 38, 39, 40]


def test_without_a_limit_nothing_ends() -> None:
    watchdog, clock = watched(0.0)
    for second in range(0, 10_000, 5):
        clock.now = second
        assert watchdog.beat(HANGS) is None
    for second in range(10_000, 20_000, 5):
        clock.now = second
        assert watchdog.look() is None


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("waits", "no progress: 1 in hand"),
        ("holds-a-thread", "its orderly end came to no end"),
        ("blocks", "its event loop has not turned for"),
    ],
)
def test_a_process_whose_handler_hangs_ends_with_1_and_says_why(how: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.ratchet.runtime.hanging_service", how],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert said in ended.stdout
    assert '"action": "hung"' in ended.stdout
