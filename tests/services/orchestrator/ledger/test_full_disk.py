"""A full disk costs time and nothing else: the short version of `bench.faults --only enospc --cycles 1000`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disks import MayNotMount, run_where_mounting_is_allowed
from tests.quick import rounds
from tests.services.orchestrator.filling_disk import fill_and_free

CYCLES = rounds(24, quick=10)


async def test_a_disk_that_is_filled_and_freed_makes_the_index_forget_nothing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    try:
        books = await fill_and_free(tmp_path, CYCLES, seed=12)
    except MayNotMount:
        run_where_mounting_is_allowed(request.node.nodeid)
        return

    assert books.complaints == []
    assert books.pauses > 0
    assert books.cycles == CYCLES
