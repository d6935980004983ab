"""Finished rollouts are put and removed by several Works at a time, and none is in another's way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from schemas.messages.response import Sample
from services.runner.kept_rollouts import KeptRollouts

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
