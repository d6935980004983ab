"""Finished rollouts are put and removed by several Works at a time, and none is in another's way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from schemas.messages.response import Sample
from services.runner.kept_rollouts import ANSWERED, MOST_ANSWERED, KeptRollouts

WORKS, TIMES = 8, 25


def test_some_are_put_while_others_are_removed(tmp_path: Path) -> None:
    kept = KeptRollouts(tmp_path, 1 << 30)

    def work(number: int) -> None:
        for time in range(TIMES):
            kept.put(f"{number} {time}", {0: Sample(text="right")})
            assert kept.of(f"{number} {time}")[0].text == "right"
            kept.remove(f"{number} {time}")

    with ThreadPoolExecutor(WORKS) as works:
        list(works.map(work, range(WORKS)))
    assert kept.bytes == 0


def test_what_was_answered_is_known_to_every_runner_that_shares_the_folder_and_bounded(tmp_path: Path) -> None:
    ours, theirs = (KeptRollouts(tmp_path / "runner", 10**9) for _ in range(2))
    assert not theirs.was_answered("1 t")
    ours.note_answered("1 t")
    assert theirs.was_answered("1 t") and not theirs.was_answered("2 t")

    for number in range(2 * MOST_ANSWERED + 1):
        ours.note_answered(f"{number} more")
    assert theirs.was_answered(f"{number} more") and not theirs.was_answered("1 t")
    assert (tmp_path / "runner" / ANSWERED).stat().st_size <= 2 * MOST_ANSWERED * 33
