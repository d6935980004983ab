"""A trajectory is on disk before its line, whatever ends the orchestrator, and goes when its line goes."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read
from ratchet.logs.segments import read_start_offsets
from ratchet.logs.trajectories import FOLDER, UNLOGGED, disk_bytes, fill_segments
from schemas.messages.response import Sample, Segment
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.tasks.settlement import settle
from tests.programs import REPOSITORY, run_module
from tests.services.orchestrator.house import answered, scored
from tests.services.orchestrator.old_logs import admitted, open_ledger, prune, prune_until

TOKENS = 9000


def talk() -> Sample:
    segment = Segment(
        prompt_ids=(1,), completion_ids=tuple(range(TOKENS)), spans=((0, TOKENS),), logprobs=(-0.5,) * TOKENS
    )
    return Sample(text="a", segments=(segment,), program="looker")


async def answer(ledger: Ledger, number: int) -> None:
    work = await admitted(ledger, f"t{number}", number)
    response = answered(work, "a").model_copy(update={"samples": (talk(), talk())})
    await ledger.settle(settle(scored(response, 0.1, 0.9), response, work, work.admitted_at))


def lines(folder: Path) -> list[Interaction]:
    return [Interaction.decode(line.data) for line in read(folder, INTERACTIONS)]


def names(folder: Path, part: str = "") -> set[str]:
    inside = folder / FOLDER / part
    return {path.name.removesuffix(".zst") for path in inside.iterdir() if path.is_file()} if inside.exists() else set()


def check(folder: Path) -> None:
    """Each line has its trajectory, whole, and each trajectory its line."""
    logged = lines(folder)
    assert names(folder) == {line.trajectory.sha256 for line in logged if line.trajectory}
    assert all((fill_segments(folder, line).sampled_tokens or 0) == TOKENS for line in logged if line.trajectory)


@pytest.mark.parametrize("step", ["trajectory-written:2", "fsynced:4", "trajectory-logged:2"])
async def test_killed_around_a_line_it_has_its_trajectory_and_no_other_is_left(tmp_path: Path, step: str) -> None:
    # given a ledger that is killed while it logs the second of two groups
    settings = {"RATCHET_FAILPOINT": step}
    child = await asyncio.to_thread(lambda: run_module(__name__, str(tmp_path), folder=REPOSITORY, settings=settings))
    assert child.code == -signal.SIGKILL, child.err
    before = names(tmp_path)
    assert len(before) == 4 and len(names(tmp_path, UNLOGGED)) == 2
    assert all(fill_segments(tmp_path, line).segments for line in lines(tmp_path))

    # when another takes over
    ledger = await open_ledger(tmp_path)

    # then what has no line is gone
    check(tmp_path)
    assert len(lines(tmp_path)) == (2 if step.startswith("trajectory-written") else 4)
    assert names(tmp_path, UNLOGGED) == set()

    # and the Reward that comes again has it logged, under the same names
    if step.startswith("trajectory-written"):
        known = ledger.find("t1")
        assert known is not None and known.result is None
        work = await ledger.work_of(known)
        response = answered(work, "a").model_copy(update={"samples": (talk(), talk())})
        await ledger.settle(settle(scored(response, 0.1, 0.9), response, work, work.admitted_at))
    check(tmp_path)
    assert names(tmp_path) == before
    await ledger.close()


async def forty_answered(folder: Path) -> None:
    ledger = await open_ledger(folder)
    for number in range(40):
        await answer(ledger, number)
        await ledger.seal_in_step()
    ledger.commit()
    await ledger.close()


async def test_a_trajectory_goes_with_its_line_and_counts_as_a_part_of_the_log(tmp_path: Path) -> None:
    await forty_answered(tmp_path)
    whole = disk_bytes(tmp_path)

    would = prune(tmp_path, whole // 2, dry=True)
    assert len(names(tmp_path)) == 80
    went = prune(tmp_path, whole // 2)

    assert [part.segment for part in would.removed] == [part.segment for part in went.removed] != []
    assert 0 < disk_bytes(tmp_path) < went.disk_bytes == would.disk_bytes <= whole // 2
    check(tmp_path)
    assert 0 < len(lines(tmp_path)) < 80


@pytest.mark.parametrize("step", ["ids-kept", "start-moved", "segment-removed"])
async def test_killed_while_it_removes_the_next_turn_leaves_no_trajectory_without_its_line(
    tmp_path: Path, step: str
) -> None:
    await forty_answered(tmp_path)
    keep = disk_bytes(tmp_path) // 2
    child = await asyncio.to_thread(prune_until, f"{step}:4", tmp_path, keep)
    assert child.code == -signal.SIGKILL, child.err
    assert all(fill_segments(tmp_path, line).segments for line in lines(tmp_path))

    prune(tmp_path, keep)

    check(tmp_path)
    assert read_start_offsets(tmp_path).sequence > 0


async def _log_two_groups(folder: Path) -> None:
    ledger = await open_ledger(folder)
    await answer(ledger, 0)
    await answer(ledger, 1)


if __name__ == "__main__":
    asyncio.run(_log_two_groups(Path(sys.argv[1])))
