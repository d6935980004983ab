"""The log of feedback and its index: one line an id, whatever is killed, torn or deleted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ratchet.logs.reader import read
from ratchet.logs.segments import sealed_segments
from schemas.messages.feedback import LoggedFeedback
from services.orchestrator.feedback.feedback_service import FeedbackLog

AT = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)


def line(feedback_id: str, task_id: str = "t1", score: float = 1.0) -> LoggedFeedback:
    return LoggedFeedback(
        feedback_id=feedback_id,
        task_id=task_id,
        sample=0,
        score=score,
        agent_id="small",
        adapter_version="v1.0.0",
        timestamp=AT,
    )


async def open_log(folder: Path, segment_bytes: int = 1 << 20) -> FeedbackLog:
    log = FeedbackLog(folder, segment_bytes=segment_bytes)
    await log.open()
    return log


def ids(folder: Path) -> list[str]:
    return [LoggedFeedback.decode(one.data).feedback_id for one in read(folder, "feedback")]


async def test_the_same_id_given_many_times_at_once_is_one_line(tmp_path: Path) -> None:
    log = await open_log(tmp_path)

    given = await asyncio.gather(*(log.add(line("a", score=score)) for score in (0.1, 0.2, 0.3)))
    await log.add(line("b"))
    await log.close()

    assert {one.score for one in given} == {0.1}
    assert ids(tmp_path) == ["a", "b"]


async def test_what_a_task_got_is_told_in_its_order(tmp_path: Path) -> None:
    log = await open_log(tmp_path)

    for feedback_id, task_id in (("a", "t1"), ("b", "t2"), ("c", "t1")):
        await log.add(line(feedback_id, task_id))

    assert [one.feedback_id for one in log.of_task("t1")] == ["a", "c"]
    assert log.of_task("unknown") == []
    await log.close()


async def test_lines_the_index_missed_are_caught_up_and_unreadable_ones_passed_over(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await log.add(line("a"))
    await log.close()
    with (tmp_path / "feedback.jsonl").open("ab") as file:
        file.write(b'{"feedback_id": "no feedback"}\n' + line("b").encode() + b'\n{"torn')

    log = await open_log(tmp_path)

    assert [one.feedback_id for one in log.of_task("t1")] == ["a", "b"]
    assert await log.add(line("b", score=0.0)) == line("b")
    await log.close()


@pytest.mark.parametrize(
    "damage", [b"", b"this is no database", None], ids=["emptied", "overwritten", "of a longer log"]
)
async def test_an_index_that_can_not_be_used_is_built_again(tmp_path: Path, damage: bytes | None) -> None:
    log = await open_log(tmp_path)
    await log.add(line("a"))
    await log.add(line("b"))
    await log.close()
    if damage is None:
        (tmp_path / "feedback.jsonl").write_bytes(line("a").encode() + b"\n")
    else:
        (tmp_path / "feedback.sqlite").write_bytes(damage)

    log = await open_log(tmp_path)

    assert log.find("a") == line("a")
    assert log.find("b") == (None if damage is None else line("b"))
    await log.close()


async def test_segments_that_were_sealed_still_count_and_ones_put_away_are_not_missed(tmp_path: Path) -> None:
    log = await open_log(tmp_path, segment_bytes=400)
    for number in range(12):
        await log.add(line(f"f{number}", task_id=f"t{number}"))
    await log.close()
    (tmp_path / "feedback.sqlite").unlink()

    log = await open_log(tmp_path, segment_bytes=400)
    assert log.find("f0") == line("f0", task_id="t0")
    await log.close()
    sealed_segments(tmp_path, "feedback")[0].path.unlink()
    (tmp_path / "feedback.sqlite").unlink()
    log = await open_log(tmp_path, segment_bytes=400)

    assert log.find("f0") is None
    assert log.find("f11") == line("f11", task_id="t11")
    await log.close()
